/* Peers: every card of the machine reaches every other one. */
#include "cuda/contexts.h"

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    ENTER_DEVICE(device, dev);
    struct device *peer = device_find(peerDev);
    REQUIRE(peer, CUDA_ERROR_INVALID_DEVICE);
    REQUIRE_VALUE(canAccessPeer);
    *canAccessPeer = device != peer;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    ENTER_CONTEXT(context);
    struct context *peer = object_find(peerContext, KIND_CONTEXT);
    REQUIRE(peer && peer != context, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE_VALUE(!Flags);
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    ENTER_CONTEXT(context);
    struct context *peer = object_find(peerContext, KIND_CONTEXT);
    REQUIRE(peer && peer != context, CUDA_ERROR_INVALID_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice)
{
    ENTER_DEVICE(source, srcDevice);
    struct device *target = device_find(dstDevice);
    REQUIRE(target && target != source, CUDA_ERROR_INVALID_DEVICE);
    REQUIRE_VALUE(value);
    *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    return CUDA_SUCCESS;
}
