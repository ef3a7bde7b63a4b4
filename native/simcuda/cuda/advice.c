/* Advice on managed memory, which never moves here: it is checked, and not followed. */
#include "cuda/blocks.h"
#include "cuda/streams.h"

static CUresult advise(CUdeviceptr address, size_t bytes)
{
    ENTER_CONTEXT(context);
    (void)context;
    REQUIRE_VALUE(bytes && block_covers(address, bytes));
    return CUDA_SUCCESS;
}

static CUresult prefetch(CUdeviceptr address, size_t bytes, CUstream handle)
{
    ENTER_STREAM(stream, handle);
    (void)stream;
    REQUIRE_VALUE(bytes && block_covers(address, bytes));
    return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    (void)advice, (void)device;
    return advise(devPtr, count);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location)
{
    (void)advice, (void)location;
    return advise(devPtr, count);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
    (void)dstDevice;
    return prefetch(devPtr, count, hStream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream)
{
    (void)location, (void)flags;
    return prefetch(devPtr, count, hStream);
}
