/* The life of pools: made, trimmed, destroyed, and shrunk while the program waited. */
#include "pools.h"

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    CUresult result = REAL(cuMemPoolCreate)(pool, properties);
    if (!result && state == FENCE_HELD && on_card(properties->location.type)) {
        pools_enter();
        pool_know(*pool, properties->location.id);
        pools_leave();
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
    pools_enter();
    graph_turn++;
    CUresult result = REAL(cuDeviceGraphMemTrim)(device);
    pools_leave();
    return refreshed(result);
}

CUresult cuMemPoolDestroy(CUmemoryPool handle)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    pools_enter();
    struct pool *pool = handle ? pool_find(handle, 0) : NULL;
    if (pool)
        pool_trim(pool); /* what it does not use must not wait for what it does */
    CUresult result = REAL(cuMemPoolDestroy)(handle);
    if (!result && pool)
        pool_forget(pool);
    pools_leave();
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
