/* Host memory that is pinned or made known; it costs no device memory. */
#include <stdlib.h>

#include "cuda/blocks.h"

#define PAGE_BYTES 4096

static CUresult allocate(void **out, size_t bytes, unsigned flags)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(out && bytes && flags < 8);
    void *start;
    REQUIRE(!posix_memalign(&start, PAGE_BYTES, bytes), CUDA_ERROR_OUT_OF_MEMORY);
    struct block *block = block_add(context, FROM_HOST, start, bytes);
    if (!block) {
        free(start);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->device = context->device;
    block->flags = flags;
    *out = start;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return allocate(pp, bytesize, 0);
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    return allocate(pp, bytesize, Flags);
}

CUresult cuMemFreeHost(void *p)
{
    ENTER_CONTEXT(context);
    (void)context;
    struct block *block = block_at((CUdeviceptr)p);
    REQUIRE_VALUE(block && block->origin == FROM_HOST);
    block_end(block);
    return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(p && bytesize);
    struct block *block = block_add(context, FROM_REGISTERED, p, bytesize);
    REQUIRE(block, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    block->device = context->device;
    block->flags = Flags;
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *p)
{
    ENTER_CONTEXT(context);
    (void)context;
    REQUIRE_VALUE(p);
    struct block *block = block_at((CUdeviceptr)p);
    REQUIRE(block && block->origin == FROM_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    block_end(block);
    return CUDA_SUCCESS;
}

static struct block *host_block(void *address)
{
    struct block *block = block_around((CUdeviceptr)address);
    return block && (block->origin == FROM_HOST || block->origin == FROM_REGISTERED) ? block : 0;
}

/* The device uses the host's own addresses. */
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    ENTER_CONTEXT(context);
    (void)context;
    REQUIRE_VALUE(pdptr && !Flags && host_block(p));
    *pdptr = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    ENTER_CONTEXT(context);
    (void)context;
    struct block *block = host_block(p);
    REQUIRE_VALUE(pFlags && block);
    *pFlags = block->flags;
    return CUDA_SUCCESS;
}
