/*
 * A CUDA program that does what its arguments say, for containers of tests.
 *
 *   gpu info          the cards it sees, one in a line: UUID, free MiB, total MiB
 *   gpu try MIB       allocate, say how it went, end
 *   gpu hold MIB      allocate, say how it went, keep it until killed
 *   gpu apart MIB FILE  try, with what the libc's own dlsym finds in a driver, past any preloaded one
 *   gpu spin SECONDS  launch kernels of a millisecond for so long, and say how many ended
 *   gpu busy SECONDS  the same, with several under way, so that the card does not run dry
 *
 * What went wrong is said by CUDA's name for it, on stdout, and the exit code is 1.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define KERNEL_US 1000u
#define UNDER_WAY 16u

static void require(CUresult result)
{
    const char *name = "CUDA_ERROR_WITHOUT_NAME";
    if (!result)
        return;
    cuGetErrorName(result, &name);
    puts(name);
    exit(1);
}

static void use(CUdevice device)
{
    CUcontext context;
    require(cuDevicePrimaryCtxRetain(&context, device));
    require(cuCtxSetCurrent(context));
}

static void tell_card(CUdevice device)
{
    CUuuid uuid;
    size_t free, total;
    require(cuDeviceGetUuid(&uuid, device));
    use(device);
    require(cuMemGetInfo(&free, &total));
    printf("GPU-");
    for (int i = 0; i < 16; i++)
        printf(i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
               (unsigned char)uuid.bytes[i]);
    printf(" %llu %llu\n", free / MIB, total / MIB);
    require(cuDevicePrimaryCtxRelease(device));
}

static void info(void)
{
    int count;
    require(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++)
        tell_card(i);
}

static void take(const char *mib)
{
    CUdeviceptr memory;
    use(0);
    require(cuMemAlloc(&memory, strtoull(mib, 0, 10) * MIB));
    puts("held");
    fflush(stdout);
}

static void *found(void *driver, const char *name)
{
    void *(*find)(void *, const char *) = dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.34");
    if (!find)
        find = dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
    void *function = driver ? find(driver, name) : NULL;
    return function ? function : (puts(dlerror()), exit(1), NULL);
}

static void take_apart(const char *mib, const char *file)
{
    void *driver = dlopen(file, RTLD_NOW);
    CUresult (*init)(unsigned) = found(driver, "cuInit");
    CUresult (*retain)(CUcontext *, CUdevice) = found(driver, "cuDevicePrimaryCtxRetain");
    CUresult (*set)(CUcontext) = found(driver, "cuCtxSetCurrent");
    CUresult (*allocate)(CUdeviceptr *, size_t) = found(driver, "cuMemAlloc_v2");
    CUcontext context;
    CUdeviceptr memory;
    require(init(0));
    require(retain(&context, 0));
    require(set(context));
    require(allocate(&memory, strtoull(mib, 0, 10) * MIB));
    puts("held");
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static const char PTX[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin_us(.param .u32 us) { ret; }\n";

static void spin(double seconds, unsigned under_way)
{
    CUmodule module;
    CUfunction kernel;
    CUevent ends[UNDER_WAY];
    unsigned us = KERNEL_US, launched = 0;
    void *arguments[] = {&us};
    use(0);
    require(cuModuleLoadData(&module, PTX));
    require(cuModuleGetFunction(&kernel, module, "spin_us"));
    for (unsigned i = 0; i < under_way; i++)
        require(cuEventCreate(&ends[i], CU_EVENT_DISABLE_TIMING));
    for (double end = now_s() + seconds; now_s() < end; launched++) {
        CUevent ended = ends[launched % under_way];
        if (launched >= under_way)
            require(cuEventSynchronize(ended));
        require(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0));
        require(cuEventRecord(ended, 0));
    }
    require(cuCtxSynchronize());
    printf("%u\n", launched);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "", *how_much = count > 2 ? words[2] : "0";
    require(cuInit(0));
    if (!strcmp(what, "info"))
        info();
    else if (!strcmp(what, "try"))
        take(how_much);
    else if (!strcmp(what, "apart"))
        take_apart(how_much, count > 3 ? words[3] : "libcuda.so.1");
    else if (!strcmp(what, "spin"))
        spin(strtod(how_much, 0), 1);
    else if (!strcmp(what, "busy"))
        spin(strtod(how_much, 0), UNDER_WAY);
    else if (!strcmp(what, "hold")) {
        take(how_much);
        for (;;)
            pause();
    } else {
        fprintf(stderr, "usage: gpu info | try MIB | hold MIB | apart MIB FILE | spin SECONDS |"
                        " busy SECONDS\n");
        return 2;
    }
    return 0;
}
