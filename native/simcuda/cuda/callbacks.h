/* Functions of the host that a stream calls when its work before them is done. */
#pragma once

#include "cuda/streams.h"

/* Call `function`, or `legacy` with the stream's handle, at that moment, from a helper thread. */
struct callback {
    struct callback *next;
    CUhostFn function;
    CUstreamCallback legacy;
    void *data;
    CUstream handle;
    unsigned long long stream_id;
    struct device *device;
    uint64_t queue_ns;
};

CUresult callback_queue(struct stream *stream, struct callback what);

/* Is any to come, or running, of a stream (0: of all)? Waiting lets go of the driver's mutex. */
bool callbacks_pending(unsigned long long stream_id);
void callbacks_wait(unsigned long long stream_id);
