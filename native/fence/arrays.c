/* Arrays and mipmaps.
 *
 * How much memory one takes is the driver's secret, which it tells only of those whose memory is
 * mapped later. So a twin of that kind, which costs nothing, is made first, asked, and destroyed.
 * Where a driver has no such kind, the description is multiplied out. */
#include "fence.h"

enum { ONE_ARRAY = 0 }; /* instead of a number of levels */

/* Of one element; a guess where formats have several planes or blocks. */
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

static uint64_t multiplied_out(const CUDA_ARRAY3D_DESCRIPTOR *array, unsigned levels)
{
    uint64_t bytes = volume(array, 0);
    for (unsigned level = 1; level < levels && level < 32 && bytes < NEVER_FITS; level++)
        bytes += volume(array, level);
    return bytes;
}

static bool ask_array(const CUDA_ARRAY3D_DESCRIPTOR *twin, CUdevice device,
                      CUDA_ARRAY_MEMORY_REQUIREMENTS *needs)
{
    CUarray array;
    if (REAL(cuArray3DCreate_v2)(&array, twin))
        return false;
    CUresult result = REAL(cuArrayGetMemoryRequirements)(needs, array, device);
    REAL(cuArrayDestroy)(array);
    return !result;
}

static bool ask_mipmap(const CUDA_ARRAY3D_DESCRIPTOR *twin, unsigned levels, CUdevice device,
                       CUDA_ARRAY_MEMORY_REQUIREMENTS *needs)
{
    CUmipmappedArray mipmap;
    if (REAL(cuMipmappedArrayCreate)(&mipmap, twin, levels))
        return false;
    CUresult result = REAL(cuMipmappedArrayGetMemoryRequirements)(needs, mipmap, device);
    REAL(cuMipmappedArrayDestroy)(mipmap);
    return !result;
}

/* Those that are mapped later get their memory from handles, which are counted themselves. */
static CUresult begin(struct charge *charge, const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned levels)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    const unsigned later = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
    if (fence_enter() != FENCE_HELD || !wanted || wanted->Flags & later)
        return charge_begin(charge, 0);
    CUDA_ARRAY3D_DESCRIPTOR twin = *wanted;
    CUdevice device = place_current().device;
    twin.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    bool told = levels == ONE_ARRAY ? ask_array(&twin, device, &needs)
                                    : ask_mipmap(&twin, levels, device, &needs);
    return charge_begin(charge, told ? needs.size : multiplied_out(wanted, levels));
}

#define CREATE(symbol, handle, kind, levels, wanted_in_full, ...)                                  \
    {                                                                                              \
        struct charge charge;                                                                      \
        CUresult result = begin(&charge, wanted ? wanted_in_full : NULL, levels);                  \
        if (result)                                                                                \
            return result;                                                                         \
        result = REAL(symbol)(handle, __VA_ARGS__);                                                \
        return charge_end(&charge, result, kind, result ? 0 : (uint64_t)*handle);                  \
    }
#define FLAT                                                                                       \
    (&(CUDA_ARRAY3D_DESCRIPTOR){wanted->Width, wanted->Height, 0, wanted->Format,                  \
                                wanted->NumChannels, 0})
#define WIDENED                                                                                    \
    (&(CUDA_ARRAY3D_DESCRIPTOR){wanted->Width, wanted->Height, wanted->Depth, wanted->Format,      \
                                wanted->NumChannels, wanted->Flags})

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *wanted)
    CREATE(cuArrayCreate, array, LEDGER_ARRAY, ONE_ARRAY, FLAT, wanted)

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *wanted)
    CREATE(cuArrayCreate_v2, array, LEDGER_ARRAY, ONE_ARRAY, FLAT, wanted)

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *wanted)
    CREATE(cuArray3DCreate, array, LEDGER_ARRAY, ONE_ARRAY, WIDENED, wanted)

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *wanted)
    CREATE(cuArray3DCreate_v2, array, LEDGER_ARRAY, ONE_ARRAY, wanted, wanted)

CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *wanted,
                                unsigned levels)
    CREATE(cuMipmappedArrayCreate, mipmap, LEDGER_MIPMAP, levels ? levels : 1, wanted, wanted, levels)

CUresult cuArrayDestroy(CUarray array)
{
    return GIVE_BACK(LEDGER_ARRAY, array, REAL(cuArrayDestroy)(array));
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    return GIVE_BACK(LEDGER_MIPMAP, mipmap, REAL(cuMipmappedArrayDestroy)(mipmap));
}
