/* Allocations in the order of a stream. */
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
