/* The primary context of each device: shared by all who retain it, and always the same handle. */
#include <stdlib.h>

#include "cuda/contexts.h"

static bool active(const struct device *device)
{
    return device->primary && object_find(device->primary, KIND_CONTEXT);
}

static CUresult open_primary(struct device *device)
{
    if (!device->primary)
        device->primary = calloc(1, sizeof *device->primary);
    if (!device->primary)
        return CUDA_ERROR_OUT_OF_MEMORY;
    device->primary->primary = true;
    device->primary->holders = 0;
    return context_open(device->primary, device, device->primary_flags);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(pctx);
    CUresult result = device_health(device);
    if (!result && !active(device))
        result = open_primary(device);
    if (result)
        return result;
    device->primary->holders++;
    *pctx = (CUcontext)device->primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE(active(device), CUDA_ERROR_INVALID_CONTEXT);
    if (!--device->primary->holders)
        context_close(device->primary);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    if (active(device))
        context_close(device->primary);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    ENTER_DEVICE(device, dev);
    device->primary_flags = flags;
    if (active(device))
        device->primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active_out)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(flags && active_out);
    *flags = device->primary_flags;
    *active_out = active(device);
    return CUDA_SUCCESS;
}
