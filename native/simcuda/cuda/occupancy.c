/* Occupancy: how many blocks fit, if only threads and shared memory are counted. */
#include "cuda/modules.h"

#define THREADS_PER_SM 2048
#define THREADS_PER_BLOCK_MAX 1024
#define BLOCKS_PER_SM 32
#define SHARED_BYTES_PER_SM 167936

static int blocks_per_sm(int block_size, size_t shared_bytes)
{
    uint64_t warps = round_up((uint64_t)block_size, 32);
    uint64_t blocks = earlier(BLOCKS_PER_SM, THREADS_PER_SM / warps);
    if (shared_bytes)
        blocks = earlier(blocks, SHARED_BYTES_PER_SM / shared_bytes);
    return (int)blocks;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags)
{
    ENTER();
    (void)flags;
    REQUIRE(routine_find(func), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(numBlocks && blockSize > 0 && blockSize <= THREADS_PER_BLOCK_MAX);
    *numBlocks = blocks_per_sm(blockSize, dynamicSMemSize);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize,
                                                                dynamicSMemSize, 0);
}

/* The caller's function for the shared memory of a block is not needed: the answer is the most. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags)
{
    ENTER();
    (void)blockSizeToDynamicSMemSize, (void)flags;
    REQUIRE(routine_find(func), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(minGridSize && blockSize && blockSizeLimit >= 0);
    bool limited = blockSizeLimit && blockSizeLimit < THREADS_PER_BLOCK_MAX;
    *blockSize = limited ? blockSizeLimit : THREADS_PER_BLOCK_MAX;
    *minGridSize =
        blocks_per_sm(*blockSize, dynamicSMemSize) * (int)device_of_thread()->facts->sm_count;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func,
                                                     blockSizeToDynamicSMemSize, dynamicSMemSize,
                                                     blockSizeLimit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize)
{
    ENTER();
    REQUIRE(routine_find(func), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(dynamicSmemSize && numBlocks > 0 && blockSize > 0);
    *dynamicSmemSize = SHARED_BYTES_PER_SM / (unsigned)numBlocks;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                            const CUlaunchConfig *config)
{
    ENTER();
    REQUIRE(routine_find(func), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(clusterSize && config);
    *clusterSize = 8;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                      const CUlaunchConfig *config)
{
    ENTER();
    REQUIRE(routine_find(func), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(numClusters && config);
    *numClusters = (int)device_of_thread()->facts->sm_count / 8;
    return CUDA_SUCCESS;
}
