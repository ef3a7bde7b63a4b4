/*
 * Stream-ordered allocation. Memory is had at once, and free at once for the next who asks the
 * pool: the order of calls is an order in which the streams could have run.
 */
#include "cuda/captures.h"
#include "cuda/pools.h"
#include "cuda/streams.h"

static CUresult allocate(CUdeviceptr *out, size_t bytes, struct pool *pool)
{
    struct block *block;
    REQUIRE(pool, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = pool_allocate(pool, bytes, &block);
    if (!result)
        *out = block->start;
    return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(dptr && bytesize);
    if (stream->capture)
        return capture_allocate(stream, dptr, bytesize);
    return allocate(dptr, bytesize, pool_current(stream_device(stream)));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream)
{
    ENTER_STREAM(stream, hStream);
    struct pool *found = object_find(pool, KIND_POOL);
    REQUIRE_VALUE(dptr && bytesize && found && !found->destroyed);
    if (stream->capture)
        return capture_allocate(stream, dptr, bytesize);
    return allocate(dptr, bytesize, found);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    ENTER_STREAM(stream, hStream);
    if (stream->capture)
        return capture_free(stream, dptr);
    struct block *block = block_at(dptr);
    REQUIRE_VALUE(block && block->origin <= FROM_GRAPH);
    if (block->origin == FROM_POOL || block->origin == FROM_GRAPH)
        pool_free(block);
    else
        block_end(block);
    return CUDA_SUCCESS;
}
