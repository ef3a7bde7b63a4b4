/* Linear copies to and from arrays (A), which are then taken as one row after the other. */
#include "cuda/arrays.h"
#include "cuda/captures.h"

/* A linear copy has an array, with an offset, or an address on each side. */
struct end {
    CUarray array;
    size_t offset;
    CUdeviceptr address;
    bool on_device;
};

static CUresult start_of(const struct end *end, size_t bytes, char **start)
{
    if (!end->array) {
        *start = (char *)end->address;
        REQUIRE_VALUE(*start && (!end->on_device || place_on_device(end->address, bytes)));
        return CUDA_SUCCESS;
    }
    const struct array *array = object_find(end->array, KIND_ARRAY);
    REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(array->place.start && end->offset <= array->bytes &&
                  bytes <= array->bytes - end->offset);
    *start = array->place.start + end->offset;
    return CUDA_SUCCESS;
}

static CUresult copy(struct end to, struct end from, size_t bytes, CUstream handle, bool wait)
{
    ENTER_STREAM(stream, handle);
    char *from_start, *to_start;
    CUresult result = start_of(&from, bytes, &from_start);
    if (!result)
        result = start_of(&to, bytes, &to_start);
    REQUIRE(!result, result);
    if (stream->capture) {
        CUDA_MEMCPY3D params = copy_params((CUdeviceptr)to_start, CU_MEMORYTYPE_UNIFIED,
                                           (CUdeviceptr)from_start, CU_MEMORYTYPE_UNIFIED, bytes);
        return wait ? capture_spoil(stream) : capture_copy(stream, &params);
    }
    struct copy linear = copy_linear(to_start, from_start, bytes);
    return copy_on(stream, &linear, wait);
}

static struct end in_array(CUarray array, size_t offset)
{
    return (struct end){.array = array ? array : (CUarray)-1, .offset = offset};
}

static struct end on_host(const void *address)
{
    return (struct end){.address = (CUdeviceptr)address};
}

static struct end on_device(CUdeviceptr address)
{
    return (struct end){.address = address, .on_device = true};
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
    return copy(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, 0, true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void *srcHost,
                              size_t ByteCount, CUstream hStream)
{
    return copy(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, hStream, false);
}

CUresult cuMemcpyAtoH_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    return copy(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, 0, true);
}

CUresult cuMemcpyAtoHAsync_v2(void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream)
{
    return copy(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, hStream, false);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount)
{
    return copy(in_array(dstArray, dstOffset), on_device(srcDevice), ByteCount, 0, false);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount)
{
    return copy(on_device(dstDevice), in_array(srcArray, srcOffset), ByteCount, 0, false);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount)
{
    return copy(in_array(dstArray, dstOffset), in_array(srcArray, srcOffset), ByteCount, 0, false);
}
