/* Takes 100 MiB and then 2 GiB of the first card, with functions that were found in one of many ways,
 * and prints the results. As a program it is told the way, and keeps all until its input ends; as a
 * library, `take` is told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *find_fn(void *handle, const char *name);

/* The libc's own, which a preloaded one does not stand before. */
static void *find_by_libc(void *handle, const char *name)
{
    static const char *versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    find_fn *find = NULL;
    for (int i = 0; i < 3 && !find; i++)
        find = (find_fn *)dlvsym(RTLD_DEFAULT, "dlsym", versions[i]);
    return find ? find(handle, name) : NULL;
}

/* A program that is linked statically has but the one that it was linked with. */
static void *find_plainly(void *handle, const char *name) { return dlsym(handle, name); }

static void *find_version(void *handle, const char *name)
{
    void *found = dlvsym(handle, name, "ANY_1.0"); /* what has no versions may be asked for any */
    return found ? found : find_by_libc(handle, name);
}

static void *function(find_fn *find, void *handle, const char *name)
{
    void *found = find(handle, name);
    if (!found)
        exit((printf("no %s: %s\n", name, dlerror()), 1));
    return found;
}

static int take_with(find_fn *find, void *handle)
{
    if (!handle)
        return printf("no driver: %s\n", dlerror()), 1;
    int (*init)(unsigned) = function(find, handle, "cuInit");
    int (*retain)(void **, int) = function(find, handle, "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = function(find, handle, "cuCtxSetCurrent");
    int (*allocate)(size_t *, size_t) = function(find, handle, "cuMemAlloc_v2");
    void *context = NULL;
    size_t pointer;
    int begun = init(0) || retain(&context, 0) || set(context);
    int small = allocate(&pointer, (size_t)100 << 20), large = allocate(&pointer, (size_t)2 << 30);
    return printf("%d %d %d\n", begun, small, large), 0;
}

static int take_as_linked(void);

__attribute__((visibility("default"))) int take(const char *way)
{
    if (!strcmp(way, "linked"))
        return take_as_linked();
    if (strchr(way, '/'))
        return take_with(find_plainly, dlopen(way, RTLD_NOW));
    if (!strcmp(way, "next"))
        return take_with(find_plainly, RTLD_NEXT);
    if (!strcmp(way, "namespace"))
        return take_with(find_plainly, dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW));
    if (!strcmp(way, "version"))
        return take_with(find_version, dlopen("libcuda.so.1", RTLD_NOW));
    if (!strcmp(way, "short name"))
        return take_with(find_by_libc, dlopen("libcuda.so", RTLD_NOW));
    return take_with(strcmp(way, "libc") ? find_plainly : find_by_libc, dlopen("libcuda.so.1", RTLD_NOW));
}

#ifdef LINKED
#include <cuda.h>
static int take_as_linked(void)
{
    CUcontext context = NULL;
    CUdeviceptr pointer;
    int begun = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
    int small = cuMemAlloc(&pointer, (size_t)100 << 20), large = cuMemAlloc(&pointer, (size_t)2 << 30);
    return printf("%d %d %d\n", begun, small, large), 0;
}
#else
static int take_as_linked(void) { return 1; }
#endif

static int take_by(const char *way, const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    int (*taker)(const char *) = library ? (int (*)(const char *))dlsym(library, "take") : NULL;
    return taker ? taker(way) : (puts(dlerror()), 1);
}

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    int result = count == 2 ? take(arguments[1]) : take_by(arguments[1], arguments[2]);
    fflush(stdout);
    getchar();
    return result;
}
