/* Who uses a card, and how much. */
#pragma once

#include "common/queue.h"

#define USAGE_WINDOW_NS (200 * NS_PER_MS) /* what "utilisation" looks back upon */

struct usage {
    unsigned slot;
    pid_t pid; /* as the pid namespace of whoever asks has it */
    uint64_t used_bytes;
    uint64_t total_ns;  /* of work that is done, since the process began */
    uint64_t busy_ns;   /* of it within the window */
    uint64_t window_ns; /* what could be looked at: less than asked for if there was too much */
};

/* The live processes with a context on the card that can be seen from here; returns how many were written. */
unsigned card_usage(const struct attachment *here, struct card *card, uint64_t window_ns,
                    struct usage usage[SLOTS]);

/* Part of the time in which the card was busy. */
unsigned card_busy_percent(const struct attachment *here, struct card *card, uint64_t window_ns);

static inline unsigned usage_percent(uint64_t busy_ns, uint64_t window_ns)
{
    return window_ns ? (unsigned)((busy_ns * 100 + window_ns / 2) / window_ns) : 0;
}
