/* Modules and libraries: code takes memory too.
 *
 * How much, nobody says. The image with its variables is an upper bound: it is taken before the
 * load, and what the card really lost stays counted after it. Others may allocate or free in
 * between; the bound keeps their noise from becoming ours. A packed image cannot be looked into, so
 * there what the card lost is believed even if it is more, provided that it loses the same again
 * when the image is loaded once more.
 * A library that the driver loads only when it is used is for libraries.c. */
#define _GNU_SOURCE
#include "code.h"

enum { LOADS = 4 }; /* of a packed image, until two of them agree */

static size_t free_now(void)
{
    size_t free_bytes = 0, total;
    REAL(cuMemGetInfo_v2)(&free_bytes, &total);
    return free_bytes;
}

CUresult load_begin(struct load *load)
{
    CUresult result = charge_begin(&load->charge, load->image.bytes);
    if (!result && load->charge.counted)
        load->free_bytes = free_now();
    return result;
}

void load_measure(struct load *load)
{
    size_t left = load->charge.counted ? free_now() : load->free_bytes;
    load->lost_bytes = load->free_bytes > left ? load->free_bytes - left : 0;
}

static void unload(enum ledger_kind kind, void *handle)
{
    if (kind == LEDGER_MODULE)
        REAL(cuModuleUnload)(handle);
    else
        REAL(cuLibraryUnload)(handle);
}

/* True: the card lost more than the image has, which may have been somebody else. It is unloaded,
 * to be loaded again. */
static bool in_doubt(struct load *load, CUresult result, enum ledger_kind kind, void *handle)
{
    uint64_t before = load->lost_bytes;
    load_measure(load);
    if (result || !load->image.packed || load->lost_bytes <= load->image.bytes)
        return false;
    bool agreed = load->times && load->lost_bytes == before;
    bool least = !load->times || load->lost_bytes < load->least_bytes;
    load->least_bytes = least ? load->lost_bytes : load->least_bytes;
    if (agreed || ++load->times == LOADS) {
        load->lost_bytes = agreed ? load->lost_bytes : load->least_bytes;
        return false;
    }
    unload(kind, handle);
    charge_drop(&load->charge);
    return true;
}

/* Nothing was lost to it: no context is current, or the driver loads it when it is used. */
static CUresult only_known(struct load *load, CUlibrary library)
{
    struct ledger_entry entry = {.key = (uint64_t)library,
                                 .bytes = load->image.bytes,
                                 .card = NOT_GRANTED,
                                 .kind = LEDGER_LIBRARY,
                                 .count = load->image.packed ? PACKED : PLAIN};
    charge_drop(&load->charge);
    if (fence_enter() == FENCE_HELD)
        ledger_add(&entry);
    return CUDA_SUCCESS;
}

CUresult load_end(struct load *load, CUresult result, enum ledger_kind kind, void *handle)
{
    uint64_t lost = load->lost_bytes;
    if (!result && !lost && kind == LEDGER_LIBRARY)
        return only_known(load, handle);
    bool believed = load->image.packed || lost < load->charge.bytes;
    if (!result && load->charge.counted && believed && !charge_settle(&load->charge, lost)) {
        unload(kind, handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (kind == LEDGER_LIBRARY)
        load->charge.place.context = NULL; /* it does not end with a context, as a module does */
    return charge_end(&load->charge, result, kind, (uint64_t)handle);
}

#define LOAD(kind, from, handle, call)                                                             \
    ({                                                                                             \
        struct load load_ = {.image = from};                                                       \
        CUresult result_;                                                                          \
        do                                                                                         \
            result_ = load_begin(&load_) ?: (call);                                                \
        while (in_doubt(&load_, result_, kind, result_ ? NULL : *(handle)));                       \
        load_end(&load_, result_, kind, result_ ? NULL : *(handle));                               \
    })

/* What cannot be read is the driver's to answer, asked for a file that is never there. */
#define LOAD_FILE(path, nothing, loaded)                                                           \
    struct image image;                                                                            \
    if (!driver_load(NULL))                                                                        \
        return CUDA_ERROR_NO_DEVICE;                                                               \
    CUresult result = image_in_file(path, &image);                                                 \
    if (result == CUDA_ERROR_FILE_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE)                 \
        return nothing;                                                                            \
    if (!result)                                                                                   \
        result = loaded;                                                                           \
    image_close(&image);                                                                           \
    return result

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD_FILE(path, REAL(cuModuleLoad)(module, path ? "" : NULL),
              LOAD(LEDGER_MODULE, image, module, REAL(cuModuleLoadData)(module, image.data)));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    return LOAD(LEDGER_MODULE, image_in_memory(image), module,
                REAL(cuModuleLoadData)(module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                            void **values)
{
    return LOAD(LEDGER_MODULE, image_in_memory(image), module,
                REAL(cuModuleLoadDataEx)(module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    return LOAD(LEDGER_MODULE, image_in_memory(image), module,
                REAL(cuModuleLoadFatBinary)(module, image));
}

CUresult cuModuleUnload(CUmodule module)
{
    return GIVE_BACK(LEDGER_MODULE, module, REAL(cuModuleUnload)(module));
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit, void **jit_values,
                           unsigned jit_count, int *options, void **values, unsigned count)
{
    return LOAD(LEDGER_LIBRARY, image_in_memory(image), library,
                REAL(cuLibraryLoadData)(library, image, jit, jit_values, jit_count, options, values,
                                        count));
}

/* An option that only images in memory may have. */
static bool preserved(const int *options, unsigned count)
{
    for (unsigned i = 0; options && i < count; i++)
        if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
            return true;
    return false;
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *jit, void **jit_values,
                               unsigned jit_count, int *options, void **values, unsigned count)
{
    bool odd = preserved(options, count);
    LOAD_FILE(odd ? NULL : path,
              REAL(cuLibraryLoadFromFile)(library, path ? "" : NULL, jit, jit_values, jit_count,
                                          options, values, count),
              LOAD(LEDGER_LIBRARY, image, library,
                   REAL(cuLibraryLoadData)(library, image.data, jit, jit_values, jit_count, options,
                                           values, count)));
}
