/* Modules and libraries: code takes memory too.
 *
 * How much, nobody says. The image is an upper bound: it is taken before the load, and what the
 * card really lost stays counted after it. Others may allocate or free in between; the bound keeps
 * their noise from becoming ours. Code that the driver loads later, at its first use, is not seen
 * here. */
#define _GNU_SOURCE
#include "fence.h"
#include <elf.h>
#include <string.h>
#include <sys/stat.h>

/* As they lie in memory. A text image may be shorter than any of them, hence strncmp. */
#define FATBIN "\x50\xED\x55\xBA"
#define FATBIN_WRAPPER "\xB1\x43\x62\x46"

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t body_bytes;
};
struct fatbin_wrapper {
    uint32_t magic, version;
    const struct fatbin *image;
};

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t elf_bytes(const Elf64_Ehdr *elf)
{
    return larger(elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize,
                  elf->e_phoff + (uint64_t)elf->e_phnum * elf->e_phentsize);
}

static bool begins(const void *image, const char *magic)
{
    return !strncmp(image, magic, strlen(magic));
}

static uint64_t image_bytes(const void *image)
{
    const struct fatbin *fatbin = image;
    if (!image)
        return 0;
    if (begins(image, ELFMAG))
        return elf_bytes(image);
    if (begins(image, FATBIN_WRAPPER))
        fatbin = ((const struct fatbin_wrapper *)image)->image;
    else if (!begins(image, FATBIN))
        return strlen(image); /* PTX */
    return fatbin->header_bytes + fatbin->body_bytes;
}

static uint64_t file_bytes(const char *path)
{
    struct stat about;
    return path && !stat(path, &about) ? (uint64_t)about.st_size : 0;
}

struct load {
    struct charge charge;
    size_t free_bytes;
};

static size_t free_now(void)
{
    size_t free_bytes = 0, total;
    REAL(cuMemGetInfo_v2)(&free_bytes, &total);
    return free_bytes;
}

static CUresult begin(struct load *load, uint64_t bytes)
{
    CUresult result = charge_begin(&load->charge, bytes);
    if (!result && load->charge.counted)
        load->free_bytes = free_now();
    return result;
}

static CUresult end(struct load *load, CUresult result, enum ledger_kind kind, void *handle)
{
    if (!result && load->charge.counted) {
        size_t left = free_now();
        uint64_t lost = load->free_bytes > left ? load->free_bytes - left : 0;
        if (lost < load->charge.bytes)
            charge_settle(&load->charge, lost);
    }
    return charge_end(&load->charge, result, kind, (uint64_t)handle);
}

#define LOAD(kind, bytes, handle, call)                                                            \
    struct load load;                                                                              \
    CUresult result = begin(&load, bytes);                                                         \
    if (result)                                                                                    \
        return result;                                                                             \
    result = call;                                                                                 \
    return end(&load, result, kind, result ? NULL : *handle)

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(LEDGER_MODULE, file_bytes(path), module, REAL(cuModuleLoad)(module, path));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(LEDGER_MODULE, image_bytes(image), module, REAL(cuModuleLoadData)(module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                            void **values)
{
    LOAD(LEDGER_MODULE, image_bytes(image), module,
         REAL(cuModuleLoadDataEx)(module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(LEDGER_MODULE, image_bytes(image), module, REAL(cuModuleLoadFatBinary)(module, image));
}

CUresult cuModuleUnload(CUmodule module)
{
    return GIVE_BACK(LEDGER_MODULE, module, REAL(cuModuleUnload)(module));
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit, void **jit_values,
                           unsigned jit_count, int *options, void **values, unsigned count)
{
    LOAD(LEDGER_LIBRARY, image_bytes(image), library,
         REAL(cuLibraryLoadData)(library, image, jit, jit_values, jit_count, options, values, count));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *jit, void **jit_values,
                               unsigned jit_count, int *options, void **values, unsigned count)
{
    LOAD(LEDGER_LIBRARY, file_bytes(path), library,
         REAL(cuLibraryLoadFromFile)(library, path, jit, jit_values, jit_count, options, values,
                                     count));
}

CUresult cuLibraryUnload(CUlibrary library)
{
    return GIVE_BACK(LEDGER_LIBRARY, library, REAL(cuLibraryUnload)(library));
}
