/* cuMemAlloc and its like. */
#include "cuda/blocks.h"
#include "cuda/pools.h"

#define PITCH_STEP 512ull

static CUresult allocate(enum origin origin, CUdeviceptr *out, size_t bytes)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(out && bytes);
    struct block *block;
    CUresult result = block_allocate(context, origin, bytes, &block);
    if (!result)
        *out = block->start;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    return allocate(FROM_DEVICE, dptr, bytesize);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
    CUdeviceptr start = 0;
    CUresult result = allocate(FROM_LOW, dptr ? &start : 0, bytesize);
    if (!result)
        *dptr = (CUdeviceptr_v1)start;
    return result;
}

static bool pitch_fits(size_t width, size_t height, unsigned element_bytes, size_t *pitch,
                       size_t *bytes)
{
    *pitch = round_up(width, PITCH_STEP);
    return width && height && *pitch >= width && !__builtin_mul_overflow(*pitch, height, bytes) &&
           (element_bytes == 4 || element_bytes == 8 || element_bytes == 16);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    size_t pitch, bytes = 0;
    bool fits = pitch_fits(WidthInBytes, Height, ElementSizeBytes, &pitch, &bytes);
    CUresult result = allocate(FROM_DEVICE, dptr && pPitch ? dptr : 0, fits ? bytes : 0);
    if (!result)
        *pPitch = pitch;
    return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes)
{
    size_t pitch, bytes = 0;
    CUdeviceptr start = 0;
    bool fits = pitch_fits(WidthInBytes, Height, ElementSizeBytes, &pitch, &bytes);
    CUresult result = allocate(FROM_LOW, dptr && pPitch ? &start : 0, fits ? bytes : 0);
    if (!result) {
        *dptr = (CUdeviceptr_v1)start;
        *pPitch = (unsigned)pitch;
    }
    return result;
}

/* Managed memory is counted where it was allocated; it never moves. */
CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    bool right = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
    return allocate(FROM_MANAGED, right ? dptr : 0, bytesize);
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    ENTER_CONTEXT(context);
    (void)context;
    if (!dptr)
        return CUDA_SUCCESS;
    struct block *block = block_at(dptr);
    REQUIRE_VALUE(block && block->origin <= FROM_GRAPH);
    if (block->origin == FROM_POOL || block->origin == FROM_GRAPH)
        pool_free(block);
    else
        block_end(block);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(free && total);
    *total = context->device->facts->memory_bytes;
    *free = *total - card_used(&driver.here, context->device->card);
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total)
{
    size_t free_bytes, total_bytes;
    CUresult result = cuMemGetInfo_v2(free ? &free_bytes : 0, total ? &total_bytes : 0);
    if (!result) {
        *free = (unsigned)earlier(free_bytes, UINT32_MAX);
        *total = (unsigned)earlier(total_bytes, UINT32_MAX);
    }
    return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    ENTER_CONTEXT(context);
    (void)context;
    struct block *block = block_around(dptr);
    REQUIRE(block, CUDA_ERROR_NOT_FOUND);
    if (pbase)
        *pbase = block->start;
    if (psize)
        *psize = block->bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
    CUdeviceptr base;
    size_t bytes;
    CUresult result = cuMemGetAddressRange_v2(&base, &bytes, dptr);
    if (!result && pbase)
        *pbase = (CUdeviceptr_v1)base;
    if (!result && psize)
        *psize = (unsigned)bytes;
    return result;
}
