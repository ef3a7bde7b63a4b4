/* Allocations in the order of a stream, and runs of graphs that have memory of their own. */
#include "pools.h"

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
    *pool = pool_find(handle, device);
    int type = CU_MEM_LOCATION_TYPE_DEVICE, id = device, kind = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (*pool)
        return true;
    REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type);
    REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_LOCATION_ID, &id);
    REAL(cuMemPoolGetAttribute)(handle, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, &kind);
    bool counted = on_card(type) || kind == CU_MEM_ALLOCATION_TYPE_MANAGED;
    *pool = counted ? pool_know(handle, on_card(type) ? id : device) : NULL;
    return counted;
}

static CUresult allocate_from(struct pool *pool, const struct request *request)
{
    uint64_t bytes = round_up(request->bytes, PHYSICAL_GRAIN_BYTES);
    if (!pool_take(&pool, bytes, request->stream, request->per_thread))
        return pool_refuse(pool);
    CUresult result = ask(request);
    if (!pool_settle(pool, bytes) && !result) { /* it grew by more than was asked of it */
        undo(request);
        pool_trim(pool);
        return pool_refuse(pool);
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
    pools_enter();
    struct pool *pool = NULL;
    bool counted = pool_of(&request, &pool);
    CUresult result = !counted ? ask(&request) : pool ? allocate_from(pool, &request)
                                                      : CUDA_ERROR_OUT_OF_MEMORY;
    pools_leave();
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

static bool take_part(const struct ledger_entry *part, const struct run *run, uint64_t *bytes)
{
    struct pool *pool = pool_know(NULL, part->card);
    *bytes = round_up(part->bytes, PHYSICAL_GRAIN_BYTES);
    if (pool && part->count == graph_trims) {
        *bytes = quota_take(pool->card, *bytes) ? *bytes : 0;
        return true;
    }
    if (pool && pool_take(&pool, *bytes, run->stream, run->per_thread))
        return true;
    pool_refuse(pool);
    return false;
}

/* On every card, or on none. */
static bool take_parts(const struct ledger_entry *parts, int count, const struct run *run,
                       uint64_t *bytes)
{
    int taken = 0;
    while (taken < count && take_part(&parts[taken], run, &bytes[taken]))
        taken++;
    if (taken == count)
        return true;
    while (taken--)
        quota_give(card_of_device(parts[taken].card), bytes[taken]);
    return false;
}

static CUresult run_graph(const struct ledger_entry *parts, int count, const struct run *run)
{
    uint64_t bytes[GRAPH_DEVICES];
    if (!take_parts(parts, count, run, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = run->call(run->exec, run->stream);
    graph_trims += parts->count != graph_trims; /* it may have what another one had */
    for (int i = 0; i < count; i++) {
        pool_settle(pool_know(NULL, parts[i].card), bytes[i]);
        struct ledger_entry ran = parts[i];
        ran.count = graph_trims;
        if (!result)
            ledger_add(&ran);
    }
    return result;
}

/* The graph that ran last still has its memory, unless what is unused was returned since, and is
 * not refused what it has. */
CUresult graph_memory_take(const struct ledger_entry *parts, int count, const struct run *run)
{
    pools_enter();
    CUresult result = run_graph(parts, count, run);
    pools_leave();
    return result;
}
