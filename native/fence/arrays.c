/* Arrays and mipmaps. Their size in memory is the driver's secret until they exist, so what the
 * description gives is taken first, and corrected by what the driver says of the finished array. */
#include "fence.h"

/* Of one element; for formats of several planes or blocks this is only a first guess. */
static uint64_t element_bytes(int format)
{
    switch (format) {
    case 0x01: case 0x08: /* 8 bits, without and with sign */
        return 1;
    case 0x02: case 0x09: case 0x10: /* 16 bits, half */
        return 2;
    default:
        return 4;
    }
}

static uint64_t at_least_1(uint64_t number) { return number ? number : 1; }

static uint64_t volume(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned level)
{
    uint64_t width = at_least_1(array->Width >> level), height = at_least_1(array->Height >> level);
    uint64_t bytes = element_bytes(array->Format) * at_least_1(array->NumChannels);
    bool layered = array->Flags & 1;
    uint64_t depth = at_least_1(layered ? array->Depth : array->Depth >> level);
    if (__builtin_mul_overflow(bytes, width, &bytes) ||
        __builtin_mul_overflow(bytes, height, &bytes) ||
        __builtin_mul_overflow(bytes, depth, &bytes))
        return NEVER_FITS;
    return bytes;
}

/* Sparse arrays are given memory later, from handles that are counted themselves. */
static uint64_t expected(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    uint64_t bytes = 0;
    if (!array || array->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    for (unsigned level = 0; level < levels && level < 32 && bytes < NEVER_FITS; level++)
        bytes += volume(array, level);
    return bytes;
}

static CUresult end_array(struct charge *charge, CUresult result, CUarray *array)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    if (!result && charge->counted &&
        !REAL(cuArrayGetMemoryRequirements)(&needs, *array, charge->place.device) &&
        !charge_settle(charge, needs.size)) {
        REAL(cuArrayDestroy)(*array);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(charge, result, LEDGER_ARRAY, result ? 0 : (uint64_t)*array);
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted)
{
    CUDA_ARRAY3D_DESCRIPTOR flat = {0};
    struct charge charge;
    if (wanted)
        flat = (CUDA_ARRAY3D_DESCRIPTOR){wanted->Width, wanted->Height, 0, wanted->Format,
                                         wanted->NumChannels, 0};
    CUresult result = charge_begin(&charge, wanted ? expected(&flat, 1) : 0);
    return result ? result : end_array(&charge, REAL(cuArrayCreate_v2)(array, wanted), array);
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted)
{
    CUDA_ARRAY3D_DESCRIPTOR flat = {0};
    struct charge charge;
    if (wanted)
        flat = (CUDA_ARRAY3D_DESCRIPTOR){wanted->Width, wanted->Height, 0, wanted->Format,
                                         wanted->NumChannels, 0};
    CUresult result = charge_begin(&charge, wanted ? expected(&flat, 1) : 0);
    return result ? result : end_array(&charge, REAL(cuArrayCreate)(array, wanted), array);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, expected(wanted, 1));
    return result ? result : end_array(&charge, REAL(cuArray3DCreate_v2)(array, wanted), array);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted)
{
    CUDA_ARRAY3D_DESCRIPTOR wide = {0};
    struct charge charge;
    if (wanted)
        wide = (CUDA_ARRAY3D_DESCRIPTOR){wanted->Width,  wanted->Height,      wanted->Depth,
                                         wanted->Format, wanted->NumChannels, wanted->Flags};
    CUresult result = charge_begin(&charge, wanted ? expected(&wide, 1) : 0);
    return result ? result : end_array(&charge, REAL(cuArray3DCreate)(array, wanted), array);
}

CUresult cuArrayDestroy(CUarray array)
{
    return GIVE_BACK(LEDGER_ARRAY, array, REAL(cuArrayDestroy)(array));
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                                unsigned levels)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    struct charge charge;
    CUresult result = charge_begin(&charge, expected(wanted, levels));
    if (result)
        return result;
    result = REAL(cuMipmappedArrayCreate)(mipmap, wanted, levels);
    if (!result && charge.counted &&
        !REAL(cuMipmappedArrayGetMemoryRequirements)(&needs, *mipmap, charge.place.device) &&
        !charge_settle(&charge, needs.size)) {
        REAL(cuMipmappedArrayDestroy)(*mipmap);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(&charge, result, LEDGER_MIPMAP, result ? 0 : (uint64_t)*mipmap);
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    return GIVE_BACK(LEDGER_MIPMAP, mipmap, REAL(cuMipmappedArrayDestroy)(mipmap));
}
