/* What the files about stream-ordered memory know of a pool: see pools.c. */
#pragma once
#include "fence.h"

struct pool {
    CUmemoryPool handle; /* NULL: the graph memory of `device` */
    CUdevice device;
    int card;
    uint64_t counted_bytes;
};

/* All that follows is called between these two. */
void pools_enter(void);
void pools_leave(void);

struct pool *pool_find(CUmemoryPool handle, CUdevice device); /* NULL: not known */
struct pool *pool_know(CUmemoryPool handle, CUdevice device); /* NULL: there are too many */
void pool_forget(struct pool *pool); /* its handle is gone */
/* Takes from the quota what the pool is about to grow by at most. It may leave and enter again, so
 * the pool may be another one afterwards, or NULL. */
bool pool_take(struct pool **pool, uint64_t bytes, CUstream stream, bool per_thread);
/* The pool may have taken `ahead` more than was counted for it; false: it took more than fits, and
 * that is counted, too. */
bool pool_settle(struct pool *pool, uint64_t ahead);
void pool_trim(struct pool *pool); /* returns what it does not use */
CUresult pool_refuse(const struct pool *pool);

extern uint32_t graph_turn; /* raised when memory of graphs was returned, or went to another one */
