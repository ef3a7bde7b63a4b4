/* Mipmapped arrays: the same picture in halves of halves. */
#include "cuda/arena.h"
#include "cuda/arrays.h"
#include "cuda/blocks.h"

static size_t halved(size_t number, unsigned times)
{
    size_t half = number >> times;
    return number && !half ? 1 : half;
}

/* Layers and the sides of a cube do not become fewer. */
static CUDA_ARRAY3D_DESCRIPTOR level_shape(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR smaller = *shape;
    smaller.Width = halved(shape->Width, level);
    smaller.Height = halved(shape->Height, level);
    if (!(shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
        smaller.Depth = halved(shape->Depth, level);
    return smaller;
}

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    size_t longest = later(shape->Width, shape->Height);
    unsigned levels = 1;
    if (!(shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
        longest = later(longest, shape->Depth);
    while (longest >>= 1)
        levels++;
    return levels;
}

void mipmap_end(void *pointer)
{
    struct mipmap *mipmap = pointer;
    for (unsigned i = 0; i < mipmap->level_count; i++)
        if (mipmap->levels[i])
            array_end(mipmap->levels[i]);
    device_release(mipmap->object.context->device, mipmap->cost_bytes);
    if (mipmap->start)
        arena_give(mipmap->start, mipmap->bytes);
    object_delete(mipmap);
}

/* Levels belong to the mipmap, not to the context, which would end them a second time. */
static bool make_levels(struct mipmap *mipmap)
{
    for (unsigned i = 0; i < mipmap->level_count; i++) {
        struct array *level = object_new(sizeof *level, KIND_ARRAY, 0);
        if (!level)
            return false;
        CUDA_ARRAY3D_DESCRIPTOR shape = level_shape(&mipmap->shape, i);
        level->level_of = mipmap;
        mipmap->levels[i] = level;
        if (!array_measure(level, &shape))
            return false;
        mipmap->bytes += level->bytes;
    }
    return true;
}

static CUresult take_memory(struct mipmap *mipmap)
{
    struct device *device = mipmap->object.context->device;
    size_t cost_bytes = round_up(mipmap->bytes, ARRAY_STEP);
    REQUIRE(mipmap->bytes <= device->facts->memory_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = device_reserve(device, cost_bytes);
    REQUIRE(!result, result);
    mipmap->cost_bytes = cost_bytes;
    char *next = mipmap->start = arena_take(mipmap->bytes);
    REQUIRE(next, CUDA_ERROR_OUT_OF_MEMORY);
    for (unsigned i = 0; i < mipmap->level_count; i++) {
        mipmap->levels[i]->place.start = next;
        next += mipmap->levels[i]->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                unsigned int numMipmapLevels)
{
    ENTER_CONTEXT(context);
    struct array measured = {0};
    REQUIRE_VALUE(pHandle && pMipmappedArrayDesc && numMipmapLevels);
    REQUIRE_VALUE(array_measure(&measured, pMipmappedArrayDesc));
    unsigned levels = (unsigned)earlier(numMipmapLevels, levels_of(pMipmappedArrayDesc));
    struct mipmap *mipmap =
        object_new(sizeof *mipmap + levels * sizeof mipmap->levels[0], KIND_MIPMAP, context);
    REQUIRE(mipmap, CUDA_ERROR_OUT_OF_MEMORY);
    mipmap->shape = *pMipmappedArrayDesc;
    mipmap->level_count = levels;
    CUresult result = make_levels(mipmap) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && !array_has_no_memory(&mipmap->shape))
        result = take_memory(mipmap);
    if (result)
        mipmap_end(mipmap);
    else
        *pHandle = (CUmipmappedArray)mipmap;
    return result;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    ENTER();
    struct mipmap *mipmap = object_find(hMipmappedArray, KIND_MIPMAP);
    REQUIRE(mipmap, CUDA_ERROR_INVALID_HANDLE);
    mipmap_end(mipmap);
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level)
{
    ENTER();
    struct mipmap *mipmap = object_find(hMipmappedArray, KIND_MIPMAP);
    REQUIRE(mipmap, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(pLevelArray && level < mipmap->level_count);
    *pLevelArray = (CUarray)mipmap->levels[level];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
                                               CUmipmappedArray mipmap, CUdevice device)
{
    ENTER_DEVICE(found, device);
    struct mipmap *asked = object_find(mipmap, KIND_MIPMAP);
    REQUIRE(asked && found, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(memoryRequirements && asked->shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING);
    *memoryRequirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
        .size = round_up(asked->bytes, ARRAY_STEP),
        .alignment = ARRAY_STEP,
    };
    return CUDA_SUCCESS;
}
