/* Modules and libraries: code takes memory too.
 *
 * How much, nobody says. The image with its variables is an upper bound: it is taken before the
 * load, and what the card really lost stays counted after it. Others may allocate or free in
 * between; the bound keeps their noise from becoming ours. A packed image cannot be looked into, so
 * there what the card lost is believed even if it is more. Code that the driver loads later, at the
 * first launch of a kernel, is not seen here. */
#define _GNU_SOURCE
#include "fence.h"
#include <elf.h>
#include <stdlib.h>
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

struct image {
    uint64_t bytes;
    bool packed; /* its variables cannot be seen */
};

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* With variables that have no bytes in the image because they begin as zeros. */
static uint64_t elf_bytes(const Elf64_Ehdr *elf)
{
    uint64_t bytes = larger(elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize,
                            elf->e_phoff + (uint64_t)elf->e_phnum * elf->e_phentsize);
    const char *sections = (const char *)elf + elf->e_shoff;
    for (unsigned i = 0; elf->e_shoff && i < elf->e_shnum; i++) {
        const Elf64_Shdr *section = (const void *)(sections + (size_t)i * elf->e_shentsize);
        if (section->sh_type == SHT_NOBITS)
            bytes = larger(bytes, bytes + section->sh_size);
    }
    return bytes;
}

/* By the number in brackets; false: it is none, or too large. An expression is not worked out. */
static bool multiplied(uint64_t *bytes, const char *text)
{
    char *end;
    uint64_t count = strtoull(text, &end, 0);
    while (*end == ' ' || *end == '\t' || *end == 'U')
        end++;
    return *end == ']' && !__builtin_mul_overflow(*bytes, end == text ? 1 : count, bytes);
}

/* Of one declaration such as `.global .align 4 .v2 .b8 name[16][4]`, up to its end. */
static uint64_t declared_bytes(const char *text, const char *end)
{
    uint64_t bytes = 8, width = 1;
    for (; text < end && *text != ';' && *text != '=' && *text != '{'; text++) {
        bool digits = text + 2 < end && text[2] >= '0' && text[2] <= '9';
        if (*text == '.' && strchr("busf", text[1]) && digits)
            bytes = width * ((strtoull(text + 2, NULL, 10) + 7) / 8);
        else if (*text == '.' && text[1] == 'v' && digits)
            width = strtoull(text + 2, NULL, 10);
        else if (*text == '[' && !multiplied(&bytes, text + 1))
            return NEVER_FITS;
    }
    return bytes;
}

/* What goes on before or after it is another word: `ld.global`, `.globally`. */
static bool in_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '$' || c == '%';
}

static uint64_t ptx_bytes(const char *text, size_t length)
{
    static const char word[] = ".global";
    uint64_t bytes = length;
    const char *end = text + length, *at = text;
    while ((at = memmem(at, (size_t)(end - at), word, sizeof word - 1))) {
        bool begins = at == text || !in_word(at[-1]);
        at += sizeof word - 1;
        if (begins && (at == end || !in_word(*at)))
            bytes = larger(bytes, bytes + declared_bytes(at, end));
    }
    return bytes;
}

static bool begins(const void *image, const char *magic)
{
    return !strncmp(image, magic, strlen(magic));
}

static struct image of_memory(const void *image)
{
    const struct fatbin *fatbin = image;
    if (!image)
        return (struct image){0, false};
    if (begins(image, ELFMAG))
        return (struct image){elf_bytes(image), false};
    if (begins(image, FATBIN_WRAPPER))
        fatbin = ((const struct fatbin_wrapper *)image)->image;
    else if (!begins(image, FATBIN))
        return (struct image){ptx_bytes(image, strlen(image)), false};
    return (struct image){fatbin->header_bytes + fatbin->body_bytes, true};
}

/* Not looked into: it may change between our look and the driver's. */
static struct image of_file(const char *path)
{
    struct stat about;
    bool found = path && !stat(path, &about);
    return (struct image){found ? (uint64_t)about.st_size : 0, true};
}

struct load {
    struct charge charge;
    size_t free_bytes;
    uint64_t bound_bytes;
    bool packed;
};

static size_t free_now(void)
{
    size_t free_bytes = 0, total;
    REAL(cuMemGetInfo_v2)(&free_bytes, &total);
    return free_bytes;
}

static CUresult begin(struct load *load, struct image image)
{
    CUresult result = charge_begin(&load->charge, image.bytes);
    load->packed = image.packed;
    load->bound_bytes = image.bytes;
    if (!result && load->charge.counted)
        load->free_bytes = free_now();
    return result;
}

static void unload(enum ledger_kind kind, void *handle)
{
    if (kind == LEDGER_MODULE)
        REAL(cuModuleUnload)(handle);
    else
        REAL(cuLibraryUnload)(handle);
}

/* Nothing was lost to it: no context is current, or the driver loads it when it is used. */
static CUresult only_known(struct load *load, CUlibrary library)
{
    struct ledger_entry entry = {.key = (uint64_t)library,
                                 .bytes = load->bound_bytes,
                                 .card = NOT_GRANTED,
                                 .kind = LEDGER_LIBRARY,
                                 .count = 1};
    charge_drop(&load->charge);
    if (fence_enter() == FENCE_HELD)
        ledger_add(&entry);
    return CUDA_SUCCESS;
}

static uint64_t lost_since(const struct load *load)
{
    size_t left = load->charge.counted ? free_now() : load->free_bytes;
    return load->free_bytes > left ? load->free_bytes - left : 0;
}

static CUresult end(struct load *load, CUresult result, enum ledger_kind kind, void *handle)
{
    uint64_t lost = result ? 0 : lost_since(load);
    if (!result && !lost && kind == LEDGER_LIBRARY)
        return only_known(load, handle);
    bool known = !result && load->charge.counted && (load->packed || lost < load->charge.bytes);
    if (known && !charge_settle(&load->charge, lost)) {
        unload(kind, handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (kind == LEDGER_LIBRARY)
        load->charge.place.context = NULL; /* it does not end with a context, as a module does */
    return charge_end(&load->charge, result, kind, (uint64_t)handle);
}

#define LOAD(kind, bytes, handle, call)                                                            \
    struct load load = {0};                                                                        \
    CUresult result = begin(&load, bytes);                                                         \
    if (result)                                                                                    \
        return result;                                                                             \
    result = call;                                                                                 \
    return end(&load, result, kind, result ? NULL : *handle)

CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(LEDGER_MODULE, of_file(path), module, REAL(cuModuleLoad)(module, path));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(LEDGER_MODULE, of_memory(image), module, REAL(cuModuleLoadData)(module, image));
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options,
                            void **values)
{
    LOAD(LEDGER_MODULE, of_memory(image), module,
         REAL(cuModuleLoadDataEx)(module, image, count, options, values));
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(LEDGER_MODULE, of_memory(image), module, REAL(cuModuleLoadFatBinary)(module, image));
}

CUresult cuModuleUnload(CUmodule module)
{
    return GIVE_BACK(LEDGER_MODULE, module, REAL(cuModuleUnload)(module));
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit, void **jit_values,
                           unsigned jit_count, int *options, void **values, unsigned count)
{
    LOAD(LEDGER_LIBRARY, of_memory(image), library,
         REAL(cuLibraryLoadData)(library, image, jit, jit_values, jit_count, options, values, count));
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, int *jit, void **jit_values,
                               unsigned jit_count, int *options, void **values, unsigned count)
{
    LOAD(LEDGER_LIBRARY, of_file(path), library,
         REAL(cuLibraryLoadFromFile)(library, path, jit, jit_values, jit_count, options, values,
                                     count));
}

static bool not_loaded(CUlibrary library, struct ledger_entry *entry)
{
    return fence_enter() == FENCE_HELD &&
           ledger_find(LEDGER_LIBRARY, (uint64_t)library, entry) && entry->card < 0;
}

/* Calls at which the driver loads a library into the current context, if it has not yet. One that
 * fails may have done so, too. */
#define USE(library, call)                                                                         \
    struct ledger_entry entry;                                                                     \
    if (!not_loaded(library, &entry))                                                              \
        return driver_load(NULL) ? call : CUDA_ERROR_NO_DEVICE;                                    \
    struct load load = {0};                                                                        \
    CUresult result = begin(&load, (struct image){entry.bytes, true});                             \
    if (result)                                                                                    \
        return result;                                                                             \
    result = call;                                                                                 \
    CUresult counted = end(&load, CUDA_SUCCESS, LEDGER_LIBRARY, library);                          \
    return result ? result : counted

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    USE(library, REAL(cuLibraryGetModule)(module, library));
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
    USE(library, REAL(cuLibraryGetGlobal)(pointer, bytes, library, name));
}

CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library,
                             const char *name)
{
    USE(library, REAL(cuLibraryGetManaged)(pointer, bytes, library, name));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUlibrary library = NULL;
    if (driver_load(NULL) && HAVE(cuKernelGetLibrary))
        REAL(cuKernelGetLibrary)(&library, kernel);
    USE(library, REAL(cuKernelGetFunction)(function, kernel));
}

CUresult cuLibraryUnload(CUlibrary library)
{
    return GIVE_BACK(LEDGER_LIBRARY, library, REAL(cuLibraryUnload)(library));
}
