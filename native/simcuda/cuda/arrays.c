/* Arrays: their shapes, and the memory they cost. */
#include "cuda/arrays.h"

#include "cuda/arena.h"
#include "cuda/blocks.h"

size_t array_element_bytes(CUarray_format format, unsigned channels)
{
    if (channels != 1 && channels != 2 && channels != 4)
        return 0;
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * channels;
    default:
        return 0;
    }
}

static size_t at_least_one(size_t number)
{
    return number ? number : 1;
}

bool array_has_no_memory(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    return shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

static bool cubemap_fits(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    bool layered = shape->Flags & CUDA_ARRAY3D_LAYERED;
    return shape->Width == shape->Height &&
           (layered ? shape->Depth && shape->Depth % 6 == 0 : shape->Depth == 6);
}

bool array_measure(struct array *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    size_t element_bytes = array_element_bytes(shape->Format, shape->NumChannels), plane_bytes;
    if (!element_bytes || !shape->Width)
        return false;
    if (shape->Flags & CUDA_ARRAY3D_CUBEMAP && !cubemap_fits(shape))
        return false;
    array->shape = *shape;
    array->rows = at_least_one(shape->Height);
    array->planes = at_least_one(shape->Depth);
    if (__builtin_mul_overflow(shape->Width, element_bytes, &array->row_bytes) ||
        __builtin_mul_overflow(array->row_bytes, array->rows, &plane_bytes) ||
        __builtin_mul_overflow(plane_bytes, array->planes, &array->bytes))
        return false;
    array->place.pitch_bytes = array->row_bytes;
    array->place.plane_bytes = plane_bytes;
    return true;
}

/* The card first, then the bytes. */
static CUresult take_memory(struct array *array)
{
    struct device *device = array->object.context->device;
    size_t cost_bytes = round_up(array->bytes, ARRAY_STEP);
    REQUIRE(array->bytes <= device->facts->memory_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = device_reserve(device, cost_bytes);
    REQUIRE(!result, result);
    array->cost_bytes = cost_bytes;
    array->place.start = arena_take(array->bytes);
    return array->place.start ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void array_end(void *pointer)
{
    struct array *array = pointer;
    if (!array->level_of) {
        device_release(array->object.context->device, array->cost_bytes);
        if (array->place.start)
            arena_give(array->place.start, array->bytes);
    }
    object_delete(array);
}

static CUresult create(CUarray *out, struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    struct array measured = {0};
    REQUIRE_VALUE(array_measure(&measured, shape));
    struct array *array = object_new(sizeof *array, KIND_ARRAY, context);
    REQUIRE(array, CUDA_ERROR_OUT_OF_MEMORY);
    array_measure(array, shape);
    CUresult result = array_has_no_memory(shape) ? CUDA_SUCCESS : take_memory(array);
    if (result)
        array_end(array);
    else
        *out = (CUarray)array;
    return result;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pHandle && pAllocateArray);
    return create(pHandle, context, pAllocateArray);
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pHandle && pAllocateArray);
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = pAllocateArray->Width,
        .Height = pAllocateArray->Height,
        .Format = pAllocateArray->Format,
        .NumChannels = pAllocateArray->NumChannels,
    };
    return create(pHandle, context, &shape);
}

/* Versions 1 have sizes of 32 bits. */
CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pHandle && pAllocateArray);
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = pAllocateArray->Width,
        .Height = pAllocateArray->Height,
        .Depth = pAllocateArray->Depth,
        .Format = pAllocateArray->Format,
        .NumChannels = pAllocateArray->NumChannels,
        .Flags = pAllocateArray->Flags,
    };
    return create(pHandle, context, &shape);
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pHandle && pAllocateArray);
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .Width = pAllocateArray->Width,
        .Height = pAllocateArray->Height,
        .Format = pAllocateArray->Format,
        .NumChannels = pAllocateArray->NumChannels,
    };
    return create(pHandle, context, &shape);
}

CUresult cuArrayDestroy(CUarray hArray)
{
    ENTER();
    struct array *array = object_find(hArray, KIND_ARRAY);
    REQUIRE(array && !array->level_of, CUDA_ERROR_INVALID_HANDLE);
    array_end(array);
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    ENTER();
    struct array *array = object_find(hArray, KIND_ARRAY);
    REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(pArrayDescriptor);
    *pArrayDescriptor = array->shape;
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    ENTER();
    struct array *array = object_find(hArray, KIND_ARRAY);
    REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(pArrayDescriptor);
    *pArrayDescriptor = (CUDA_ARRAY_DESCRIPTOR){
        .Width = array->shape.Width,
        .Height = array->shape.Height,
        .Format = array->shape.Format,
        .NumChannels = array->shape.NumChannels,
    };
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                      CUarray array, CUdevice device)
{
    ENTER_DEVICE(found, device);
    struct array *asked = object_find(array, KIND_ARRAY);
    REQUIRE(asked && found, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(memoryRequirements && asked->shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING);
    *memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = round_up(asked->bytes, ARRAY_STEP),
        .alignment = ARRAY_STEP,
    };
    return CUDA_SUCCESS;
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUarray array)
{
    ENTER();
    struct array *asked = object_find(array, KIND_ARRAY);
    REQUIRE(asked, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(sparseProperties && asked->shape.Flags & CUDA_ARRAY3D_SPARSE);
    *sparseProperties = (CUDA_ARRAY_SPARSE_PROPERTIES){
        .tileExtent = {.width = 128, .height = 128, .depth = 1},
    };
    return CUDA_SUCCESS;
}
