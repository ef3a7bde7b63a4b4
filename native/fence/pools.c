/* Stream-ordered memory: what counts is what a pool keeps from the card, not what was asked of it.
 *
 * A pool grows when it must and shrinks at synchronisation, so after every call that can change it
 * the driver is asked what it has reserved. An allocation is taken in full first, as if the pool
 * had nothing to reuse, and corrected afterwards. Memory nodes of graphs live in one more pool of
 * each device, which is treated alike. Memory of host pools is not the card's, unless it is managed
 * and may move there: then it counts where the pool is first used. */
#define _GNU_SOURCE
#include "pools.h"
#include <pthread.h>

enum { POOLS = 4096 }; /* of one process; who makes more gets no memory from them */

int pools_in_use;

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[POOLS];
static int known;

void pools_enter(void) { pthread_mutex_lock(&pools_lock); }

void pools_leave(void) { pthread_mutex_unlock(&pools_lock); }

static uint64_t reserved_bytes(const struct pool *pool)
{
    uint64_t bytes = 0;
    CUresult result =
        pool->handle
            ? REAL(cuMemPoolGetAttribute)(pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes)
            : REAL(cuDeviceGetGraphMemAttribute)(pool->device,
                                                 CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes);
    return result ? pool->counted_bytes : bytes;
}

bool pool_settle(struct pool *pool, uint64_t ahead)
{
    uint64_t kept = reserved_bytes(pool), counted = pool->counted_bytes + ahead;
    bool fits = kept <= counted || quota_take(pool->card, kept - counted);
    if (kept < counted)
        quota_give(pool->card, counted - kept);
    if (!fits)
        quota_add(pool->card, kept - counted); /* it has it all the same, and nobody else does */
    pool->counted_bytes = kept;
    quota_taken(pool->card);
    return fits;
}

struct pool *pool_find(CUmemoryPool handle, CUdevice device)
{
    for (int i = 0; i < known; i++)
        if (pools[i].handle == handle && (handle || pools[i].device == device))
            return &pools[i];
    return NULL;
}

struct pool *pool_know(CUmemoryPool handle, CUdevice device)
{
    struct pool *pool = pool_find(handle, device);
    if (pool || known == POOLS)
        return pool;
    pool = &pools[known++];
    *pool = (struct pool){.handle = handle, .device = device, .card = card_of_device(device)};
    __atomic_store_n(&pools_in_use, 1, __ATOMIC_RELEASE);
    return pool;
}

void pool_trim(struct pool *pool)
{
    graph_turn += !pool->handle;
    if (pool->handle)
        REAL(cuMemPoolTrimTo)(pool->handle, 0);
    else
        REAL(cuDeviceGraphMemTrim)(pool->device);
    pool_settle(pool, 0);
}

static void press(int card)
{
    for (struct pool *pool = pools; pool < pools + known; pool++)
        if (pool->card == card)
            pool_trim(pool);
}

void pools_press(int card)
{
    if (!pools_used())
        return;
    pools_enter();
    press(card);
    pools_leave();
}

void pools_refresh(void)
{
    if (likely(!pools_used()))
        return;
    pools_enter();
    for (struct pool *pool = pools; pool < pools + known; pool++)
        pool_settle(pool, 0);
    pools_leave();
}

static void wait_for(CUstream stream, bool per_thread)
{
    int mode = capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    per_thread ? REAL(cuStreamSynchronize_ptsz)(stream) : REAL(cuStreamSynchronize)(stream);
    capture_mode(mode);
}

/* What was freed in the order of a stream cannot be returned before the stream gets there. Whoever
 * is about to be refused waits for that, as the driver does where the card itself is full. */
bool pool_take(struct pool **pool, uint64_t bytes, CUstream stream, bool per_thread)
{
    int card = (*pool)->card;
    CUmemoryPool handle = (*pool)->handle;
    CUdevice device = (*pool)->device;
    if (quota_take(card, bytes))
        return true;
    if (card < 0 || bytes > quota_limit(card))
        return false;
    press(card);
    if (quota_take(card, bytes))
        return true;
    pools_leave(); /* what the stream waits for may need us */
    wait_for(stream, per_thread);
    pools_enter();
    *pool = pool_find(handle, device);
    press(card);
    return *pool && quota_take(card, bytes);
}

CUresult pool_refuse(const struct pool *pool)
{
    if (pool && pool->card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (pool)
        quota_refused(pool->card);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

struct orphans {
    uint64_t owner;
    uint32_t count;
};

static void orphan(struct ledger_entry *entry, void *with)
{
    struct orphans *orphans = with;
    entry->owner = orphans->owner;
    entry->count = WITHOUT_POOL;
    orphans->count++;
}

/* A pool whose memory is in use lives on without its handle until the last of it is freed. So does
 * what is counted for it, under a number that the rest of its memory holds. Frees may come between,
 * hence the many holders at first. */
void pool_forget(struct pool *pool)
{
    const uint32_t many = 1u << 30;
    struct orphans orphans = {physical_add(pool->card, pool->counted_bytes, many), 0};
    ledger_visit(LEDGER_POOLED, (CUcontext)pool->handle, orphan, &orphans);
    physical_drop(orphans.owner, many - orphans.count);
    *pool = pools[--known];
}

uint64_t pools_bytes(int card)
{
    uint64_t total = 0;
    for (const struct pool *pool = pools; pool < pools + known; pool++)
        if (pool->card == card)
            total += pool->counted_bytes;
    return total;
}

void pools_forked(void)
{
    pthread_mutex_init(&pools_lock, NULL);
    known = 0;
    pools_in_use = 0;
}
