/* Which functions the real driver has, and which of ours stands for which of them. */
#define _GNU_SOURCE
#include "driver.h"
#include "firsts.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The version under which every glibc of the architecture exports its first dlsym. */
#if defined(__x86_64__)
#define DLSYM_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define DLSYM_VERSION "GLIBC_2.17"
#else
#error "the fence knows x86-64 and arm64"
#endif

#ifndef HOOKS_TABLE /* native/libraries.py says how it is called */
#define HOOKS_TABLE partage_hooks
#endif
#define QUOTED(name) #name
#define TEXT(name) QUOTED(name)
extern void *const HOOKS_TABLE[];

struct hook {
    const char *symbol, *name;
    int version;
    bool per_thread;
    void *wrapper;
    enum driver_symbol index;
};

static const struct hook hooks[] = {
#define X(symbol, name, version, per_thread)                                                       \
    {#symbol, #name, version, per_thread, (void *)symbol, SYMBOL_##symbol},
    CUDA_HOOKS(X)
#undef X
#define X(symbol) {#symbol, "", 0, false, (void *)symbol, SYMBOL_##symbol},
    NVML_HOOKS(X)
#undef X
};
/* For the libraries in the driver's place, which jump through it (native/substitute). Its name says
 * which functions it has, so that one of another build is not found, instead of jumped astray in. */
__attribute__((visibility("default"))) void *const HOOKS_TABLE[] = {
#define X(symbol, ...) (void *)symbol,
    CUDA_HOOKS(X) NVML_HOOKS(X)
#undef X
};
#define X(...) +1
enum { HOOKS = sizeof hooks / sizeof *hooks, CUDA_ONLY = CUDA_HOOKS(X) };
#undef X

static const struct {
    const char *name;
    enum driver_symbol index;
} cuda_symbols[] = {
#define X(symbol, ...) {#symbol, SYMBOL_##symbol},
    CUDA_HOOKS(X) CUDA_CALLS(X)
}, nvml_symbols[] = {
    NVML_HOOKS(X) NVML_CALLS(X)
#undef X
};

/* Of a library of the driver's: as programs know it, and behind ours. */
static const struct names {
    const char *library, *behind;
} cuda_names = {"libcuda.so.1", CUDA_BEHIND}, nvml_names = {"libnvidia-ml.so.1", NVML_BEHIND};

void *driver_real[SYMBOLS];

static const struct hook *by_pointer[CUDA_ONLY]; /* sorted by the driver's address */
static int loading; /* see firsts.h */
static bool cuda_loaded, nvml_loaded;
static void *cuda, *nvml; /* handles */

static CUresult cuda_missing(void) { return CUDA_ERROR_NOT_FOUND; }
static nvmlReturn_t nvml_missing(void) { return NVML_ERROR_FUNCTION_NOT_FOUND; }

/* Preloaded, we stand before the libc, and to look behind us allocates nothing, which matters where an
 * allocator asks. Opened with the driver, we may stand behind it, in whatever order the program has. */
static void *look_for_dlsym(void)
{
    void *found = dlvsym(RTLD_NEXT, "dlsym", DLSYM_VERSION);
    const char *libraries[] = {"libc.so.6", "libdl.so.2"}; /* before glibc 2.34, the second */
    for (int i = 0; i < 2 && !found; i++) {
        void *handle = dlopen(libraries[i], RTLD_LAZY | RTLD_NOLOAD);
        found = handle ? dlvsym(handle, "dlsym", DLSYM_VERSION) : NULL;
    }
    return found;
}

dlsym_fn *driver_dlsym(void)
{
    static dlsym_fn *libc_dlsym;
    dlsym_fn *found = __atomic_load_n(&libc_dlsym, __ATOMIC_RELAXED);
    if (!found) {
        found = (dlsym_fn *)look_for_dlsym();
        __atomic_store_n(&libc_dlsym, found, __ATOMIC_RELAXED);
    }
    return found;
}

static uintptr_t address(const struct hook *hook) { return (uintptr_t)driver_real[hook->index]; }

static int order_pointer(const void *a, const void *b)
{
    uintptr_t left = address(*(const struct hook *const *)a);
    uintptr_t right = address(*(const struct hook *const *)b);
    return (left > right) - (left < right);
}

/* Ours in the driver's place leads to the table of hooks; no driver does. */
static void *table_behind(void *handle)
{
    return handle ? driver_dlsym()(handle, TEXT(HOOKS_TABLE)) : NULL;
}

/* What was not found here is nothing that the program should hear of. */
static void forget_errors(void) { dlerror(); }

/* A namespace has a fence of its own, and so a table of its own. */
bool driver_is_fenced_elsewhere(void *handle)
{
    void *table = table_behind(handle);
    forget_errors();
    return table && table != (void *)HOOKS_TABLE;
}

/* What the program opened, or what it was linked with: never a driver of our own choice. Where ours
 * stands in the driver's place, the driver is behind it, under its other name. By a handle of our
 * own, since the program's may find more than the driver, and for good, since a program that closes
 * the driver and opens it again would leave us with addresses of the first one. Only names are asked
 * for that are loaded: a search would take a while, in which the program may fork. */
static void *opened(const char *path, const struct names *names)
{
    const int mode = RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE;
    void *handle = dlopen(path ? path : names->library, mode);
    return table_behind(handle) ? dlopen(names->behind, mode) : handle;
}

static void *find(void *handle, const char *name, void *missing)
{
    void *found = driver_dlsym()(handle, name);
    return found && !hook_owns(found) ? found : missing;
}

bool driver_load(const char *path)
{
    void *handle;
    if (__atomic_load_n(&cuda_loaded, __ATOMIC_ACQUIRE))
        return true;
    first_lock(&loading);
    if (!cuda_loaded && (handle = opened(path, &cuda_names))) {
        for (size_t i = 0; i < sizeof cuda_symbols / sizeof *cuda_symbols; i++)
            driver_real[cuda_symbols[i].index] =
                find(handle, cuda_symbols[i].name, (void *)cuda_missing);
        forget_errors();
        cuda = handle;
        for (int i = 0; i < CUDA_ONLY; i++)
            by_pointer[i] = &hooks[i];
        qsort(by_pointer, CUDA_ONLY, sizeof *by_pointer, order_pointer);
        __atomic_store_n(&cuda_loaded, true, __ATOMIC_RELEASE);
    }
    first_unlock(&loading);
    return cuda_loaded;
}

bool nvml_load(const char *path)
{
    void *handle;
    if (__atomic_load_n(&nvml_loaded, __ATOMIC_ACQUIRE))
        return true;
    first_lock(&loading);
    if (!nvml_loaded && (handle = opened(path, &nvml_names))) {
        for (size_t i = 0; i < sizeof nvml_symbols / sizeof *nvml_symbols; i++)
            driver_real[nvml_symbols[i].index] =
                find(handle, nvml_symbols[i].name, (void *)nvml_missing);
        forget_errors();
        nvml = handle;
        __atomic_store_n(&nvml_loaded, true, __ATOMIC_RELEASE);
    }
    first_unlock(&loading);
    return nvml_loaded;
}

bool driver_has(enum driver_symbol symbol)
{
    return driver_real[symbol] != (void *)cuda_missing && driver_real[symbol] != (void *)nvml_missing;
}

/* One after another: to sort them first, once, would cost a program that only looks more. */
static const struct hook *named(const char *symbol)
{
    for (const struct hook *hook = hooks; hook < hooks + HOOKS; hook++)
        if (!strcmp(hook->symbol, symbol))
            return hook;
    return NULL;
}

bool hook_knows(const char *symbol) { return named(symbol); }

void *hook_by_symbol(const char *symbol)
{
    const struct hook *hook = named(symbol);
    if (!hook || driver_has(hook->index))
        return hook ? hook->wrapper : NULL;
    /* NULL; and the libc has the error for whoever asks it. */
    return driver_dlsym()(hook < hooks + CUDA_ONLY ? cuda : nvml, symbol);
}

void *hook_by_pointer(const void *real)
{
    int low = 0, high = CUDA_ONLY;
    while (low < high) {
        int middle = (low + high) / 2;
        if (address(by_pointer[middle]) < (uintptr_t)real)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < CUDA_ONLY && address(by_pointer[low]) == (uintptr_t)real;
    return found ? by_pointer[low]->wrapper : NULL;
}

/* The newest form that is not newer than asked; the per-thread form only where asked for. */
void *hook_by_request(const char *name, int version, bool per_thread)
{
    const struct hook *best = NULL;
    for (const struct hook *hook = hooks; hook < hooks + HOOKS; hook++) {
        if (strcmp(hook->name, name) || hook->version > version || hook->per_thread > per_thread)
            continue;
        if (!best || hook->per_thread > best->per_thread ||
            (hook->per_thread == best->per_thread && hook->version > best->version))
            best = hook;
    }
    return best ? best->wrapper : NULL;
}

bool hook_owns(const void *pointer)
{
    for (int i = 0; i < HOOKS; i++)
        if (hooks[i].wrapper == pointer)
            return true;
    return false;
}
