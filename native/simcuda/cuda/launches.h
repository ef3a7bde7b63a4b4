/* Launches: a kernel with its shape and its arguments. */
#pragma once

#include "cuda/modules.h"
#include "cuda/streams.h"

struct launch {
    void *function; /* handle of a function or a kernel */
    struct routine *routine;
    unsigned grid[3], block[3], shared_bytes;
    void **arguments;    /* one pointer for each, or NULL */
    const void *packed;  /* all of them in one buffer, or NULL */
    size_t packed_bytes;
};

/* Check a launch as it was asked for, and find its arguments. */
CUresult launch_prepare(struct launch *launch, void **arguments, void **extra);

/* Run it on a stream that has room for it, or record it if the stream is captured. */
CUresult launch_on(struct stream *stream, struct launch *launch);

/* How long it takes; and its effects on memory, if it is a kernel that computes. */
uint64_t launch_duration_ns(const struct launch *launch);
CUresult launch_effects(const struct launch *launch);
