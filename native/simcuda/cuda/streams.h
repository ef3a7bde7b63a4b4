/*
 * Streams, and the time that work on them takes.
 *
 * A stream is not much more than the moment when its last work ends, in queue time of its card.
 * Since a card runs everything in the order in which it was queued, order between streams of a card
 * comes by itself; what is kept apart is when each of them is done.
 */
#pragma once

#include "cuda/contexts.h"

struct capture;

struct stream {
    struct object object;
    struct stream *next_of_thread;
    unsigned long long thread; /* whose default stream it is, or 0 */
    unsigned long long id;
    unsigned flags;
    int priority;
    uint64_t end_ns;         /* of its own last work */
    struct capture *capture; /* while it records a graph */
    struct stream *next_captured;
    struct node **heads; /* what the next node depends on */
    size_t head_count;
};

struct stream *stream_new(struct context *context, unsigned flags, int priority);
void stream_end(void *stream);

/* The stream of a handle: 0, 1 and 2 are the default streams of the current context. */
CUresult stream_find(struct stream **stream, CUstream handle);

/* When all work is done that a stream has to wait for. */
uint64_t stream_tail(const struct stream *stream);

/*
 * Have room for one more launch: with as many queued as there may be, wait for the oldest. The
 * mutex is free meanwhile, so nothing but the stream may have been looked up before.
 */
CUresult stream_admit(const struct stream *stream);

/* Work that the card does in order with all its other work: kernels. */
void stream_compute(struct stream *stream, uint64_t duration_ns);

/* Work beside that: copies, which have engines of their own. */
void stream_occupy(struct stream *stream, uint64_t duration_ns);

/* Nothing that follows on the stream begins before that moment of its card. */
void stream_delay(struct stream *stream, uint64_t queue_ns);

/* Wait for all work of a stream, or of a context; refused while it is captured. */
CUresult stream_wait(struct stream *stream);
CUresult context_wait(struct context *context);

static inline struct device *stream_device(const struct stream *stream)
{
    return stream->object.context->device;
}
