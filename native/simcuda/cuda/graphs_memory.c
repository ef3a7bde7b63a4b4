/* Device memory that graphs have allocated. */
#include "cuda/pools.h"

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    ENTER_DEVICE(found, device);
    if (found->graph_pool)
        pool_trim(found->graph_pool, 0);
    return CUDA_SUCCESS;
}

static uint64_t *attribute_of(struct pool *pool, CUgraphMem_attribute attribute)
{
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &pool->used_bytes;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &pool->used_high_bytes;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved_bytes;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high_bytes;
    default:
        return 0;
    }
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    ENTER_DEVICE(found, device);
    struct pool *pool = pool_of_graphs(found);
    REQUIRE(pool, CUDA_ERROR_OUT_OF_MEMORY);
    const uint64_t *bytes = attribute_of(pool, attr);
    REQUIRE_VALUE(value && bytes);
    *(cuuint64_t *)value = *bytes;
    return CUDA_SUCCESS;
}

/* High-water marks can be set to 0, which makes them what is there now. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value)
{
    ENTER_DEVICE(found, device);
    struct pool *pool = pool_of_graphs(found);
    REQUIRE(pool, CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE_VALUE(value && !*(cuuint64_t *)value);
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        pool->used_high_bytes = pool->used_bytes;
    else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high_bytes = pool->reserved_bytes;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
