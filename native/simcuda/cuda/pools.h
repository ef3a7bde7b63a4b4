/*
 * Pools of memory. A pool reserves memory of its card in steps and hands it out; what is freed
 * stays reserved until somebody synchronizes, and beyond that as far as the threshold says.
 */
#pragma once

#include "cuda/blocks.h"

struct stream;

enum { REUSES = 3 };

struct pool {
    struct object object;
    struct pool *next;
    struct device *device; /* NULL: its memory is the host's, and not counted */
    CUmemPoolProps props;
    uint64_t used_bytes, used_high_bytes;
    uint64_t reserved_bytes, reserved_high_bytes;
    uint64_t threshold_bytes;
    int reuse[REUSES];
    bool destroyed; /* it goes with its last block */
};

struct pool *pool_new(struct device *device, const CUmemPoolProps *props);
void pool_destroy(struct pool *pool);

/* The pools of a device, made at their first use; NULL without memory. */
struct pool *pool_default(struct device *device);
struct pool *pool_current(struct device *device);
struct pool *pool_of_graphs(struct device *device);

/* Memory at an address that the pool chooses, or at one that a graph has reserved. */
CUresult pool_allocate(struct pool *pool, size_t bytes, struct block **block);
CUresult pool_allocate_at(struct pool *pool, void *start, size_t bytes, struct block **block);

/* Have that much reserved beyond what is used. */
CUresult pool_reserve(struct pool *pool, uint64_t more_bytes);
void pool_free(struct block *block);

/* Give back what a pool has reserved and does not use, beyond what it is to keep. */
void pool_trim(struct pool *pool, uint64_t keep_bytes);

/* The same for all pools of a device, down to their thresholds or to the last byte. */
void pools_shrink(struct device *device, bool to_the_last);
