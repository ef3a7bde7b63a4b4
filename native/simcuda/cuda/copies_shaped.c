/* Copies of rows and planes, between memory and arrays. */
#include "cuda/arrays.h"
#include "cuda/captures.h"

/* One side, as the parameters of 2D and 3D copies describe it. */
struct side {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x_bytes, y, z, pitch_bytes, height;
};

static CUresult place_in_array(const struct side *side, const struct copy *copy,
                               struct place *place)
{
    const struct array *array = object_find(side->array, KIND_ARRAY);
    REQUIRE(array, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(array->place.start);
    REQUIRE_VALUE(side->x_bytes <= array->row_bytes && side->y <= array->rows &&
                  side->z <= array->planes);
    REQUIRE_VALUE(copy->width_bytes <= array->row_bytes - side->x_bytes &&
                  copy->height <= array->rows - side->y && copy->depth <= array->planes - side->z);
    *place = array->place;
    return CUDA_SUCCESS;
}

/* Bytes from the first row or plane to the end of the last; false if no address goes that far. */
static bool span(size_t before, size_t count, size_t step_bytes, size_t *bytes)
{
    size_t steps;
    return !__builtin_add_overflow(before, count - 1, &steps) &&
           !__builtin_mul_overflow(steps, step_bytes, &steps) &&
           !__builtin_add_overflow(*bytes, steps, bytes);
}

/* With one row or one plane, the distance to the next one may be left out. */
static CUresult place_in_memory(const struct side *side, const struct copy *copy,
                                struct place *place)
{
    CUdeviceptr start = side->type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)side->host : side->device;
    size_t reach, plane_bytes;
    REQUIRE_VALUE(start && !__builtin_add_overflow(side->x_bytes, copy->width_bytes, &reach));
    size_t pitch = side->pitch_bytes ? side->pitch_bytes : reach;
    size_t height = side->height ? side->height : side->y + copy->height;
    REQUIRE_VALUE(pitch >= reach && !__builtin_mul_overflow(pitch, height, &plane_bytes));
    REQUIRE_VALUE(span(side->y, copy->height, pitch, &reach) &&
                  span(side->z, copy->depth, plane_bytes, &reach));
    REQUIRE_VALUE(side->type != CU_MEMORYTYPE_DEVICE || place_on_device(start, reach));
    *place = (struct place){(char *)start, pitch, plane_bytes};
    return CUDA_SUCCESS;
}

static CUresult place_of(const struct side *side, const struct copy *copy, struct place *place)
{
    CUresult result = side->type == CU_MEMORYTYPE_ARRAY ? place_in_array(side, copy, place)
                                                        : place_in_memory(side, copy, place);
    if (!result)
        place->start +=
            side->z * place->plane_bytes + side->y * place->pitch_bytes + side->x_bytes;
    return result;
}

static bool type_known(CUmemorytype type)
{
    return type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED;
}

static CUresult describe(const struct side *from, const struct side *to, struct copy *copy)
{
    REQUIRE_VALUE(type_known(from->type) && type_known(to->type));
    CUresult result = place_of(from, copy, &copy->from);
    return result ? result : place_of(to, copy, &copy->to);
}

CUresult copy_of_3d(const CUDA_MEMCPY3D *params, struct copy *copy)
{
    struct side from = {params->srcMemoryType, params->srcHost,  params->srcDevice,
                        params->srcArray,      params->srcXInBytes, params->srcY,
                        params->srcZ,          params->srcPitch, params->srcHeight};
    struct side to = {params->dstMemoryType, params->dstHost,  params->dstDevice,
                      params->dstArray,      params->dstXInBytes, params->dstY,
                      params->dstZ,          params->dstPitch, params->dstHeight};
    *copy = (struct copy){
        .width_bytes = params->WidthInBytes,
        .height = params->Height,
        .depth = params->Depth,
    };
    return describe(&from, &to, copy);
}

static CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D *flat)
{
    return (CUDA_MEMCPY3D){
        .srcXInBytes = flat->srcXInBytes,
        .srcY = flat->srcY,
        .srcMemoryType = flat->srcMemoryType,
        .srcHost = flat->srcHost,
        .srcDevice = flat->srcDevice,
        .srcArray = flat->srcArray,
        .srcPitch = flat->srcPitch,
        .dstXInBytes = flat->dstXInBytes,
        .dstY = flat->dstY,
        .dstMemoryType = flat->dstMemoryType,
        .dstHost = flat->dstHost,
        .dstDevice = flat->dstDevice,
        .dstArray = flat->dstArray,
        .dstPitch = flat->dstPitch,
        .WidthInBytes = flat->WidthInBytes,
        .Height = flat->Height,
        .Depth = 1,
    };
}

static CUresult copy_3d(const CUDA_MEMCPY3D *params, CUstream handle, bool wait)
{
    ENTER_STREAM(stream, handle);
    struct copy copy;
    REQUIRE_VALUE(params);
    if (!params->WidthInBytes || !params->Height || !params->Depth)
        return CUDA_SUCCESS;
    if (stream->capture)
        return wait ? capture_spoil(stream) : capture_copy(stream, params);
    CUresult result = copy_of_3d(params, &copy);
    return result ? result : copy_on(stream, &copy, wait);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *params, CUstream handle, bool wait)
{
    if (!params)
        return wrong_value();
    CUDA_MEMCPY3D deep = as_3d(params);
    return copy_3d(&deep, handle, wait);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, 0, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy)
{
    return copy_2d(pCopy, 0, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    return copy_2d(pCopy, hStream, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *pCopy)
{
    return copy_3d(pCopy, 0, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return copy_3d(pCopy, hStream, false);
}

/* The same but for two contexts in the places that are reserved there. */
_Static_assert(sizeof(CUDA_MEMCPY3D) == sizeof(CUDA_MEMCPY3D_PEER), "laid out alike");

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *pCopy)
{
    return copy_3d((const CUDA_MEMCPY3D *)pCopy, 0, true);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    return copy_3d((const CUDA_MEMCPY3D *)pCopy, hStream, false);
}
