/* Linked with the driver, which it uses, and then opens a second one in another namespace: the driver
 * itself or, where it is told one, a library that is linked with it. Prints what comes of either. */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef CUresult init_fn(unsigned);
typedef CUresult retain_fn(CUcontext *, CUdevice);
typedef CUresult set_fn(CUcontext);
typedef CUresult allocate_fn(CUdeviceptr *, size_t);
typedef CUresult range_fn(CUdeviceptr *, size_t *, CUdeviceptr);

/* The fence wraps some of these functions and not the others. */
static void use(init_fn *init, retain_fn *retain, set_fn *set, allocate_fn *allocate, range_fn *range)
{
    CUcontext context = NULL;
    CUdeviceptr pointer = 0, base = 0;
    size_t bytes = 0;
    printf("%d", init(0) || retain(&context, 0) || set(context));
    printf(" %d", allocate(&pointer, (size_t)100 << 20));
    printf(" %d", range(&base, &bytes, pointer));
    printf(" %d\n", allocate(&pointer, (size_t)2 << 30));
}

static void *function(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    if (!found)
        exit((puts(dlerror()), 1));
    return found;
}

int main(int count, char **arguments)
{
    void *other = dlmopen(LM_ID_NEWLM, count > 1 ? arguments[1] : "libcuda.so.1", RTLD_NOW);
    if (!other)
        return puts(dlerror()), 1;
    use(cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc, cuMemGetAddressRange);
    use(function(other, "cuInit"), function(other, "cuDevicePrimaryCtxRetain"),
        function(other, "cuCtxSetCurrent"), function(other, "cuMemAlloc_v2"),
        function(other, "cuMemGetAddressRange_v2"));
    fflush(stdout);
    getchar();
}
