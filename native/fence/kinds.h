/* Kinds of launches that cost the same: a function on a shape of grid, or an executable graph.
 * Not safe for threads: costs.c, which is the only one to use it, holds a lock. */
#pragma once
#include "fence.h"

struct kind {
    const void *key;
    uint64_t shape;
    CUcontext context;
    uint64_t launches, first_launch_ns;
    uint64_t mean_ns;        /* of clean measurements */
    uint64_t clean_at_ns;    /* when the last of them was made */
    uint64_t shortest_ns[2]; /* of disturbed ones: this window and the one before */
    uint64_t window_began_ns, quiet_at_ns;
    uint32_t clean, odd, in_window;
};

struct kind *kind_of(const struct work *work);
uint64_t kind_expected(const struct kind *kind); /* 0: nothing is known */
void kind_learn(struct kind *kind, uint64_t took_ns, bool disturbed);
bool kind_to_be_measured(const struct kind *kind); /* its next launch */
/* Whether to wait for the neighbours to be done before its next launch, since that will be measured
 * and disturbed measurements are all there is. */
bool kind_wants_quiet(struct kind *kind);
void kinds_forget(CUcontext context);
void kinds_forked(void);
