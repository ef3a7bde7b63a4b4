/* Stream-ordered memory: what counts is what a pool keeps from the card, not what was asked of it.
 *
 * A pool grows when it must and shrinks at synchronisation, so after every call that can change it
 * the driver is asked what it has reserved. An allocation is taken in full first, as if the pool
 * had nothing to reuse, and corrected afterwards. Memory nodes of graphs live in one more pool of
 * each device, which is treated alike. Memory of host pools is not the card's. */
#define _GNU_SOURCE
#include "fence.h"
#include <pthread.h>
#include <string.h>

enum { POOLS = 4096 }; /* of one process; who makes more gets no memory from them */

struct pool {
    CUmemoryPool handle; /* NULL: the graph memory of `device` */
    CUdevice device;
    int card;
    uint64_t counted_bytes;
};

int pools_in_use;

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pool pools[POOLS];
static int known;

static uint32_t graph_trims = 1; /* times that unused memory of graphs was returned */

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

/* The pool may have taken `ahead` more than was counted for it; false: it took more than fits. */
static bool settle(struct pool *pool, uint64_t ahead)
{
    uint64_t kept = reserved_bytes(pool), counted = pool->counted_bytes + ahead;
    bool fits = kept <= counted || quota_take(pool->card, kept - counted);
    if (kept < counted)
        quota_give(pool->card, counted - kept);
    pool->counted_bytes = fits ? kept : counted;
    return fits;
}

static struct pool *find_pool(CUmemoryPool handle, CUdevice device)
{
    for (int i = 0; i < known; i++)
        if (pools[i].handle == handle && (handle || pools[i].device == device))
            return &pools[i];
    return NULL;
}

static struct pool *know_pool(CUmemoryPool handle, CUdevice device)
{
    struct pool *pool = find_pool(handle, device);
    if (pool || known == POOLS)
        return pool;
    pool = &pools[known++];
    *pool = (struct pool){.handle = handle, .device = device, .card = card_of_device(device)};
    __atomic_store_n(&pools_in_use, 1, __ATOMIC_RELEASE);
    return pool;
}

static void trim(struct pool *pool)
{
    graph_trims += !pool->handle;
    if (pool->handle)
        REAL(cuMemPoolTrimTo)(pool->handle, 0);
    else
        REAL(cuDeviceGraphMemTrim)(pool->device);
    settle(pool, 0);
}

static void press(int card)
{
    for (struct pool *pool = pools; pool < pools + known; pool++)
        if (pool->card == card)
            trim(pool);
}

void pools_press(int card)
{
    if (!pools_used())
        return;
    pthread_mutex_lock(&pools_lock);
    press(card);
    pthread_mutex_unlock(&pools_lock);
}

void pools_refresh(void)
{
    if (likely(!pools_used()))
        return;
    pthread_mutex_lock(&pools_lock);
    for (struct pool *pool = pools; pool < pools + known; pool++)
        settle(pool, 0);
    pthread_mutex_unlock(&pools_lock);
}

static void wait_for(CUstream stream, bool per_thread)
{
    int mode = capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    per_thread ? REAL(cuStreamSynchronize_ptsz)(stream) : REAL(cuStreamSynchronize)(stream);
    capture_mode(mode);
}

/* What was freed in the order of a stream cannot be returned before the stream gets there. Whoever
 * is about to be refused waits for that, as the driver does where the card itself is full. */
static bool take(struct pool **pool, uint64_t bytes, CUstream stream, bool per_thread)
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
    pthread_mutex_unlock(&pools_lock); /* what the stream waits for may need us */
    wait_for(stream, per_thread);
    pthread_mutex_lock(&pools_lock);
    *pool = find_pool(handle, device);
    press(card);
    return *pool && quota_take(card, bytes);
}

static CUresult refuse(const struct pool *pool)
{
    if (pool && pool->card >= 0)
        __atomic_add_fetch(&fence_region->card[pool->card].refused, 1, __ATOMIC_RELAXED);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- allocations ------------------------------------------------------------------------------ */

struct request {
    CUdeviceptr *pointer;
    size_t bytes;
    CUmemoryPool pool; /* NULL: the current one of the stream's device */
    CUstream stream;
    bool per_thread;
};

static CUresult ask(const struct request *request)
{
    if (request->pool && request->per_thread)
        return REAL(cuMemAllocFromPoolAsync_ptsz)(request->pointer, request->bytes, request->pool,
                                                  request->stream);
    if (request->pool)
        return REAL(cuMemAllocFromPoolAsync)(request->pointer, request->bytes, request->pool,
                                             request->stream);
    if (request->per_thread)
        return REAL(cuMemAllocAsync_ptsz)(request->pointer, request->bytes, request->stream);
    return REAL(cuMemAllocAsync)(request->pointer, request->bytes, request->stream);
}

static void undo(const struct request *request)
{
    if (request->per_thread)
        REAL(cuMemFreeAsync_ptsz)(*request->pointer, request->stream);
    else
        REAL(cuMemFreeAsync)(*request->pointer, request->stream);
}

bool stream_capturing(CUstream stream, bool per_thread)
{
    int capturing = 0;
    CUresult result = per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &capturing)
                                 : REAL(cuStreamIsCapturing)(stream, &capturing);
    return !result && capturing;
}

/* Handles below 8 are the driver's names for the default streams of the current context; any other
 * stream needs no context to be current. False: there is no such stream. */
static bool device_of(CUstream stream, CUdevice *device)
{
    struct place here = place_current();
    CUcontext context = here.context;
    *device = here.device;
    if ((uintptr_t)stream < 8)
        return context;
    if (REAL(cuStreamGetCtx)(stream, &context))
        return false;
    if (context != here.context && !REAL(cuCtxPushCurrent_v2)(context)) {
        REAL(cuCtxGetDevice)(device);
        REAL(cuCtxPopCurrent_v2)(&context);
    }
    return true;
}

/* False: the memory is not a card's, or the driver is about to refuse. Otherwise NULL means that
 * there are too many pools to keep account of. */
static bool pool_of(const struct request *request, struct pool **pool)
{
    CUmemoryPool handle = request->pool;
    CUdevice device;
    if (!device_of(request->stream, &device) ||
        (!handle && REAL(cuDeviceGetMemPool)(&handle, device)))
        return false;
    *pool = find_pool(handle, device);
    int type = CU_MEM_LOCATION_TYPE_DEVICE, id = device;
    if (*pool)
        return true;
    REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type);
    REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &id);
    *pool = on_card(type) ? know_pool(handle, id) : NULL;
    return on_card(type);
}

static CUresult allocate_from(struct pool *pool, const struct request *request)
{
    uint64_t bytes = round_up(request->bytes, PHYSICAL_GRAIN_BYTES);
    if (!take(&pool, bytes, request->stream, request->per_thread))
        return refuse(pool);
    CUresult result = ask(request);
    if (!settle(pool, bytes) && !result) { /* it grew by more than was asked of it */
        undo(request);
        trim(pool);
        return refuse(pool);
    }
    struct ledger_entry entry = {.key = result ? 0 : *request->pointer,
                                 .bytes = round_up(request->bytes, GRAIN_BYTES),
                                 .context = (CUcontext)pool->handle,
                                 .card = (int16_t)pool->card,
                                 .kind = LEDGER_POOLED,
                                 .count = 1};
    if (!result)
        ledger_add(&entry);
    return result;
}

/* While a stream is captured nothing is allocated: see graphs.c. */
static CUresult allocate(struct request request)
{
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    if (state == FENCE_OPEN || !request.pointer || !request.bytes ||
        stream_capturing(request.stream, request.per_thread))
        return ask(&request);
    pthread_mutex_lock(&pools_lock);
    struct pool *pool = NULL;
    bool counted = pool_of(&request, &pool);
    CUresult result = !counted ? ask(&request) : pool ? allocate_from(pool, &request)
                                                      : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&pools_lock);
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate((struct request){pointer, bytes, NULL, stream, false});
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate((struct request){pointer, bytes, NULL, stream, true});
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    if (!pool) /* which means another one in a request */
        return driver_load(NULL) ? REAL(cuMemAllocFromPoolAsync)(pointer, bytes, pool, stream)
                                 : CUDA_ERROR_NO_DEVICE;
    return allocate((struct request){pointer, bytes, pool, stream, false});
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream)
{
    if (!pool)
        return driver_load(NULL) ? REAL(cuMemAllocFromPoolAsync_ptsz)(pointer, bytes, pool, stream)
                                 : CUDA_ERROR_NO_DEVICE;
    return allocate((struct request){pointer, bytes, pool, stream, true});
}

static CUresult run_graph(struct pool *pool, const struct ledger_entry *graph, const struct run *run)
{
    uint64_t bytes = round_up(graph->bytes, PHYSICAL_GRAIN_BYTES);
    bool has_memory = graph->count == graph_trims;
    if (has_memory && !quota_take(pool->card, bytes))
        bytes = 0;
    else if (!has_memory && !take(&pool, bytes, run->stream, run->per_thread))
        return refuse(pool);
    CUresult result = run->call(run->exec, run->stream);
    settle(pool, bytes);
    struct ledger_entry ran = *graph;
    ran.count = graph_trims;
    if (!result)
        ledger_add(&ran);
    return result;
}

/* A graph that ran since unused memory was last returned still has its own, and is not refused what
 * it has. */
CUresult graph_memory_take(const struct ledger_entry *graph, const struct run *run)
{
    pthread_mutex_lock(&pools_lock);
    struct pool *pool = know_pool(NULL, graph->card);
    CUresult result = pool ? run_graph(pool, graph, run) : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&pools_lock);
    return result;
}

/* ---- the life of pools -------------------------------------------------------------------------- */

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    CUresult result = REAL(cuMemPoolCreate)(pool, properties);
    if (!result && state == FENCE_HELD && on_card(properties->location.type)) {
        pthread_mutex_lock(&pools_lock);
        know_pool(*pool, properties->location.id);
        pthread_mutex_unlock(&pools_lock);
    }
    return result;
}

static CUresult refreshed(CUresult result)
{
    pools_refresh();
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    return driver_load(NULL) ? refreshed(REAL(cuMemPoolTrimTo)(pool, keep)) : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    pthread_mutex_lock(&pools_lock);
    graph_trims++;
    CUresult result = REAL(cuDeviceGraphMemTrim)(device);
    pthread_mutex_unlock(&pools_lock);
    return refreshed(result);
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
static void forget_pool(struct pool *pool)
{
    const uint32_t many = 1u << 30;
    struct orphans orphans = {physical_add(pool->card, pool->counted_bytes, many), 0};
    ledger_visit(LEDGER_POOLED, (CUcontext)pool->handle, orphan, &orphans);
    physical_drop(orphans.owner, many - orphans.count);
    *pool = pools[--known];
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    pthread_mutex_lock(&pools_lock);
    struct pool *pool = handle ? find_pool(handle, 0) : NULL;
    if (pool)
        trim(pool); /* what it does not use must not wait for what it does */
    CUresult result = REAL(cuMemPoolDestroy)(handle);
    if (!result && pool)
        forget_pool(pool);
    pthread_mutex_unlock(&pools_lock);
    return result;
}

/* Every wait of the program for the card: afterwards its pools may have shrunk. */
#define WAIT(symbol, parameters, ...)                                                              \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        return driver_load(NULL) ? refreshed(REAL(symbol)(__VA_ARGS__)) : CUDA_ERROR_NO_DEVICE;    \
    }
WAIT(cuStreamSynchronize, (CUstream stream), stream)
WAIT(cuStreamSynchronize_ptsz, (CUstream stream), stream)
WAIT(cuEventSynchronize, (CUevent event), event)
WAIT(cuCtxSynchronize, (void), )
WAIT(cuCtxSynchronize_v2, (CUcontext context), context)

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
