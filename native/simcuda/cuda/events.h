/* Events: moments of a card's queue time. */
#pragma once

#include "cuda/streams.h"

struct node;

struct event {
    struct object object;
    unsigned flags;
    struct device *device; /* where it was recorded; NULL if never */
    uint64_t queue_ns;
    unsigned long long stream_id; /* whose callbacks it waits for */
    unsigned long long capture_id; /* recorded while its stream was captured, it is nodes */
    struct node **heads;
    size_t head_count;
};

void event_end(void *event);
void event_record(struct event *event, const struct stream *stream);

/* What follows on a stream begins after the event, which may be on another card. */
void event_delays(const struct event *event, struct stream *stream);
