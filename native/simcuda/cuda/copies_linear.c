/* Linear copies as a program calls them: between host (H), device (D), or wherever it is. */
#include "cuda/captures.h"
#include "cuda/copies.h"

enum side {
    HOST = CU_MEMORYTYPE_HOST,
    DEVICE = CU_MEMORYTYPE_DEVICE,
    EITHER = CU_MEMORYTYPE_UNIFIED,
};

static bool side_fits(enum side side, CUdeviceptr address, size_t bytes)
{
    return side != DEVICE || place_on_device(address, bytes);
}

static CUresult copy(CUdeviceptr to, enum side to_side, CUdeviceptr from, enum side from_side,
                     size_t bytes, CUstream handle, bool wait)
{
    ENTER_STREAM(stream, handle);
    if (!bytes)
        return CUDA_SUCCESS;
    REQUIRE_VALUE(to && from);
    if (stream->capture) {
        CUDA_MEMCPY3D params =
            copy_params(to, (CUmemorytype)to_side, from, (CUmemorytype)from_side, bytes);
        return wait ? capture_spoil(stream) : capture_copy(stream, &params);
    }
    REQUIRE_VALUE(side_fits(to_side, to, bytes) && side_fits(from_side, from, bytes));
    struct copy copy = copy_linear((void *)to, (void *)from, bytes);
    return copy_on(stream, &copy, wait);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return copy(dst, EITHER, src, EITHER, ByteCount, 0, true);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    return copy(dst, EITHER, src, EITHER, ByteCount, hStream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return copy(dstDevice, DEVICE, (CUdeviceptr)srcHost, HOST, ByteCount, 0, true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                              CUstream hStream)
{
    return copy(dstDevice, DEVICE, (CUdeviceptr)srcHost, HOST, ByteCount, hStream, false);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy((CUdeviceptr)dstHost, HOST, srcDevice, DEVICE, ByteCount, 0, true);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream)
{
    return copy((CUdeviceptr)dstHost, HOST, srcDevice, DEVICE, ByteCount, hStream, false);
}

/* Within the device a copy does not hold up the host. */
CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return copy(dstDevice, DEVICE, srcDevice, DEVICE, ByteCount, 0, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream)
{
    return copy(dstDevice, DEVICE, srcDevice, DEVICE, ByteCount, hStream, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    if (!dstContext || !srcContext)
        return wrong_value();
    return copy(dstDevice, DEVICE, srcDevice, DEVICE, ByteCount, hStream, false);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount)
{
    return cuMemcpyPeerAsync(dstDevice, dstContext, srcDevice, srcContext, ByteCount, 0);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               CUstream hStream)
{
    (void)attrs, (void)attrsIdxs, (void)numAttrs; /* hints */
    if (!dsts || !srcs || !sizes || !count || !hStream)
        return wrong_value();
    for (size_t i = 0; i < count; i++) {
        CUresult result = copy(dsts[i], EITHER, srcs[i], EITHER, sizes[i], hStream, false);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                            size_t *failIdx, CUstream hStream)
{
    if (failIdx)
        *failIdx = SIZE_MAX; /* no single copy was to blame */
    return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size,
                                     CUmemcpyAttributes *attr, CUstream hStream)
{
    (void)attr;
    return copy(dst, EITHER, src, EITHER, size, hStream, false);
}
