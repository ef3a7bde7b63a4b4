/* Pools as a program sees them, and which of them a device uses. */
#include "cuda/pools.h"

/* The device of a location; *host is set if it is memory of the host. */
static struct device *device_of_location(const CUmemLocation *location, bool *host)
{
    *host = location->type == CU_MEM_LOCATION_TYPE_HOST ||
            location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
            location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? device_find(location->id) : 0;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    ENTER();
    bool host;
    REQUIRE_VALUE(pool && poolProps);
    struct device *device = device_of_location(&poolProps->location, &host);
    if (poolProps->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED &&
        (host || poolProps->location.type == CU_MEM_LOCATION_TYPE_NONE))
        device = device_of_thread(); /* what is managed is counted where it was made */
    REQUIRE_VALUE(device || host);
    struct pool *made = pool_new(device, poolProps);
    REQUIRE(made, CUDA_ERROR_OUT_OF_MEMORY);
    *pool = (CUmemoryPool)made;
    return CUDA_SUCCESS;
}

static bool is_built_in(const struct pool *pool)
{
    const struct device *device = pool->device;
    return device && (pool == device->default_pool || pool == device->graph_pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER();
    struct pool *found = object_find(pool, KIND_POOL);
    REQUIRE_VALUE(found && !found->destroyed && !is_built_in(found));
    pool_destroy(found);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    ENTER();
    struct pool *found = object_find(pool, KIND_POOL);
    REQUIRE_VALUE(found);
    pool_trim(found, minBytesToKeep);
    return CUDA_SUCCESS;
}

/* Where an attribute that is a number of bytes is kept; NULL if it is not such a one. */
static uint64_t *bytes_attribute(struct pool *pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high_bytes;
    default:
        return 0;
    }
}

static bool is_reuse(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

/* Properties with which it was made. */
static CUresult read_property(const struct pool *pool, CUmemPool_attribute attribute, void *value)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_ALLOCATION_TYPE:
        *(CUmemAllocationType *)value = pool->props.allocType;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES:
        *(CUmemAllocationHandleType *)value = pool->props.handleTypes;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_ID:
        *(int *)value = pool->props.location.id;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_LOCATION_TYPE:
        *(CUmemLocationType *)value = pool->props.location.type;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_MAX_POOL_SIZE:
        *(cuuint64_t *)value = pool->props.maxSize;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED:
        *(int *)value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    ENTER();
    struct pool *found = object_find(pool, KIND_POOL);
    REQUIRE_VALUE(found && value);
    uint64_t *bytes = bytes_attribute(found, attr);
    if (is_reuse(attr))
        *(int *)value = found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
    else if (bytes)
        *(cuuint64_t *)value = *bytes;
    else
        return read_property(found, attr, value);
    return CUDA_SUCCESS;
}

/* High-water marks can only be set to 0, which makes them what is there now. */
static CUresult reset_high(struct pool *pool, CUmemPool_attribute attribute, cuuint64_t value)
{
    REQUIRE_VALUE(!value);
    if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        pool->reserved_high_bytes = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        pool->used_high_bytes = pool->used_bytes;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    ENTER();
    struct pool *found = object_find(pool, KIND_POOL);
    REQUIRE_VALUE(found && value);
    if (is_reuse(attr))
        found->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value;
    else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        found->threshold_bytes = *(cuuint64_t *)value;
    else
        return reset_high(found, attr, *(cuuint64_t *)value);
    return CUDA_SUCCESS;
}

/* Every device reaches all memory of the machine: access is granted without being kept. */
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    ENTER();
    REQUIRE_VALUE(object_find(pool, KIND_POOL) && (map || !count));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
    ENTER();
    REQUIRE_VALUE(flags && location && object_find(memPool, KIND_POOL));
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

static CUresult answer(CUmemoryPool *out, struct pool *pool)
{
    REQUIRE(pool, CUDA_ERROR_OUT_OF_MEMORY);
    *out = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(pool_out);
    return answer(pool_out, pool_default(device));
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(pool);
    return answer(pool, pool_current(device));
}

static CUresult make_current(struct device *device, CUmemoryPool handle)
{
    struct pool *pool = object_find(handle, KIND_POOL);
    REQUIRE_VALUE(pool && !pool->destroyed && pool->device == device);
    device->current_pool = pool;
    return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    ENTER_DEVICE(device, dev);
    return make_current(device, pool);
}

/* CUDA 13 asks by location; memory of the host has no pool of its own here. */
static CUresult locate(struct device **device, const CUmemLocation *location)
{
    bool host;
    REQUIRE_VALUE(location);
    *device = device_of_location(location, &host);
    REQUIRE(!host, CUDA_ERROR_NOT_SUPPORTED);
    return *device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type)
{
    ENTER();
    struct device *device;
    refused_ = locate(&device, location);
    REQUIRE(!refused_, refused_);
    REQUIRE_VALUE(pool_out && type == CU_MEM_ALLOCATION_TYPE_PINNED);
    return answer(pool_out, pool_default(device));
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    ENTER();
    struct device *device;
    refused_ = locate(&device, location);
    REQUIRE(!refused_, refused_);
    REQUIRE_VALUE(pool && type == CU_MEM_ALLOCATION_TYPE_PINNED);
    return answer(pool, pool_current(device));
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    ENTER();
    struct device *device;
    refused_ = locate(&device, location);
    REQUIRE(!refused_, refused_);
    REQUIRE_VALUE(type == CU_MEM_ALLOCATION_TYPE_PINNED);
    return make_current(device, pool);
}
