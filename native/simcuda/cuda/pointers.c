/* What can be asked about an address. */
#include "cuda/pools.h"

static bool is_host(const struct block *block)
{
    return block->origin == FROM_HOST || block->origin == FROM_REGISTERED;
}

/* Managed memory is the host's as well as the device's. */
static bool host_reaches(const struct block *block)
{
    return is_host(block) || block->origin == FROM_MANAGED;
}

static CUresult answer_handle(void *data, void *handle)
{
    *(void **)data = handle;
    return CUDA_SUCCESS;
}

static CUresult answer_number(void *data, int number)
{
    *(int *)data = number;
    return CUDA_SUCCESS;
}

static CUresult answer_size(void *data, size_t bytes)
{
    *(size_t *)data = bytes;
    return CUDA_SUCCESS;
}

static CUresult answer_flag(void *data, bool flag)
{
    *(unsigned char *)data = flag;
    return CUDA_SUCCESS;
}

static CUresult get(const struct block *block, CUpointer_attribute attribute, CUdeviceptr address,
                    void *data)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return answer_handle(data, block->object.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return answer_number(data, is_host(block) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return answer_handle(data, (void *)address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return host_reaches(block) ? answer_handle(data, (void *)address)
                                   : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return answer_size(data, block->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return answer_flag(data, block->origin == FROM_MANAGED);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return answer_number(data, block->device ? block->device->ordinal : -1);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return answer_flag(data, block->origin == FROM_DEVICE);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return answer_handle(data, (void *)block->start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return answer_size(data, block->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return answer_flag(data, true);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return answer_number(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return answer_handle(data, block->origin == FROM_POOL ? block->pool : 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL:
        return answer_number(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        return answer_flag(data, false);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    ENTER();
    struct block *block = block_around(ptr);
    REQUIRE_VALUE(data && block);
    return get(block, attribute, ptr, data);
}

/* What cuPointerGetAttributes says about an address that is nobody's: zeros, and no device. */
static void get_unknown(CUpointer_attribute attribute, void *data)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        answer_number(data, 0);
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        answer_number(data, -2); /* CU_DEVICE_INVALID */
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        answer_flag(data, false);
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        answer_number(data, 0);
        break;
    default:
        answer_handle(data, 0);
    }
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr)
{
    ENTER();
    REQUIRE_VALUE(numAttributes && attributes && data);
    struct block *block = block_around(ptr);
    for (unsigned i = 0; i < numAttributes; i++) {
        REQUIRE_VALUE(data[i]);
        if (!block || get(block, attributes[i], ptr, data[i]))
            get_unknown(attributes[i], data[i]);
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    ENTER();
    REQUIRE_VALUE(value && block_around(ptr) && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
    return CUDA_SUCCESS;
}
