/*
 * What users of CUDA's runtime make of the driver, call by call. The runtime itself cannot run on a
 * simulated driver; like it, this program opens the driver and looks every function up.
 *
 * Each sequence takes memory until it is refused and tells how much it got; then it gives it back as
 * its model does, and waits for a line before it ends.
 */
#define _GNU_SOURCE
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <unistd.h>

#include "sim_check.h"

#define STEP (20 * MIB) /* PyTorch's segments, when it needs much */

static CUstream stream;
static PFN_cuGetProcAddress_v12000 look_up;

static void *found(const char *name, int version)
{
    void *function;
    CUdriverProcAddressQueryResult status;
    OK(look_up(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    CHECK(function && status == CU_GET_PROC_ADDRESS_SUCCESS);
    return function;
}

/* A function in the form that it has had since a version: FUNCTION(cuMemAlloc, 3020)(...) */
#define FUNCTION(name, version) ((PFN_##name##_v##version)found(#name, version))

/* Device memory as cudaMemGetInfo tells it. */
static size_t available(void)
{
    size_t free, total;
    OK(FUNCTION(cuMemGetInfo, 3020)(&free, &total));
    return free;
}

/* cudaSetDevice, cudaStreamCreateWithFlags. */
static void begin(void)
{
    CUcontext context;
    CUdevice device;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(driver);
    look_up = (PFN_cuGetProcAddress_v12000)dlsym(driver, "cuGetProcAddress_v2");
    CHECK(look_up);
    OK(FUNCTION(cuInit, 2000)(0));
    OK(FUNCTION(cuDeviceGet, 2000)(&device, 0));
    OK(FUNCTION(cuDevicePrimaryCtxRetain, 7000)(&context, device));
    OK(FUNCTION(cuCtxSetCurrent, 4000)(context));
    OK(FUNCTION(cuStreamCreateWithPriority, 5050)(&stream, CU_STREAM_NON_BLOCKING, 0));
}

static CUdeviceptr held[4096];
static size_t held_count;

/* cudaMalloc, as PyTorch's allocator calls it: when refused, it gives back what it keeps unused. */
static size_t of_malloc(void)
{
    CUresult result;
    while (!(result = FUNCTION(cuMemAlloc, 3020)(&held[held_count], STEP)))
        CHECK(++held_count < COUNT(held));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, result);
    size_t got = held_count * STEP;
    for (int i = 0; i < 4; i++)
        OK(FUNCTION(cuMemFree, 3020)(held[--held_count]));
    OK(FUNCTION(cuMemAlloc, 3020)(&held[held_count++], 4 * STEP));
    while (held_count)
        OK(FUNCTION(cuMemFree, 3020)(held[--held_count]));
    return got;
}

/* cudaMallocAsync with a pool that keeps everything, as PyTorch and JAX set it up. */
static size_t of_malloc_async(void)
{
    CUmemoryPool pool;
    CUresult result;
    cuuint64_t everything = UINT64_MAX;
    OK(FUNCTION(cuDeviceGetDefaultMemPool, 11020)(&pool, 0));
    OK(FUNCTION(cuMemPoolSetAttribute, 11020)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                              &everything));
    while (!(result = FUNCTION(cuMemAllocAsync, 11020)(&held[held_count], STEP, stream)))
        CHECK(++held_count < COUNT(held));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, result);
    size_t got = held_count * STEP, left = available();
    while (held_count)
        OK(FUNCTION(cuMemFreeAsync, 11020)(held[--held_count], stream));
    OK(FUNCTION(cuStreamSynchronize, 2000)(stream));
    CHECK(available() == left); /* kept, and had again without asking the card */
    OK(FUNCTION(cuMemAllocAsync, 11020)(&held[0], got, stream));
    OK(FUNCTION(cuMemFreeAsync, 11020)(held[0], stream));
    OK(FUNCTION(cuStreamSynchronize, 2000)(stream));
    OK(FUNCTION(cuMemPoolTrimTo, 11020)(pool, 0));
    return got;
}

static const CUmemAllocationProp ON_CARD = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};
static const CUmemAllocationProp ON_HOST = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA},
};
static const CUmemAccessDesc OF_CARD = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

static CUresult mapped(CUdeviceptr at, size_t bytes, const CUmemAllocationProp *properties)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = FUNCTION(cuMemCreate, 10020)(&handle, bytes, properties, 0);
    if (result)
        return result;
    OK(FUNCTION(cuMemMap, 10020)(at, bytes, 0, handle, 0));
    OK(FUNCTION(cuMemSetAccess, 10020)(at, bytes, &OF_CARD, 1));
    return FUNCTION(cuMemRelease, 10020)(handle);
}

/* PyTorch's expandable segments: one long range of addresses that memory is mapped into. */
static size_t of_expandable_segments(void)
{
    CUdeviceptr start;
    CUresult result;
    size_t got = 0, range = COUNT(held) * STEP;
    OK(FUNCTION(cuMemAddressReserve, 10020)(&start, range, 0, 0, 0));
    while (!(result = mapped(start + got, STEP, &ON_CARD)))
        got += STEP;
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, result);
    OK(FUNCTION(cuMemsetD8Async, 3020)(start + STEP - 1, 7, 2, stream)); /* across two segments */
    OK(FUNCTION(cuStreamSynchronize, 2000)(stream));
    for (size_t at = got; at; at -= STEP)
        OK(FUNCTION(cuMemUnmap, 10020)(start + at - STEP, STEP));
    OK(FUNCTION(cuMemAddressFree, 10020)(start, range));
    return got;
}

/* NCCL: buffers on the card that others can open, and twice as much of the host, which is free. */
static size_t of_nccl(void)
{
    CUdeviceptr on_card, on_host;
    CUmemGenericAllocationHandle handle;
    size_t step, bytes = 64 * MIB, before = available(), host_bytes = 2 * (before / STEP) * STEP;
    int file;
    OK(FUNCTION(cuMemGetAllocationGranularity, 10020)(&step, &ON_HOST,
                                                      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    OK(FUNCTION(cuMemAddressReserve, 10020)(&on_host, host_bytes, 0, 0, 0));
    OK(mapped(on_host, host_bytes, &ON_HOST));
    CHECK(host_bytes % step == 0 && available() == before);
    OK(FUNCTION(cuMemAddressReserve, 10020)(&on_card, bytes, 0, 0, 0));
    OK(mapped(on_card, bytes, &ON_CARD));
    OK(FUNCTION(cuMemRetainAllocationHandle, 11000)(&handle, (void *)on_card));
    OK(FUNCTION(cuMemExportToShareableHandle, 10020)(&file, handle,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(file); /* which keeps the memory like a handle */
    OK(FUNCTION(cuMemRelease, 10020)(handle));
    CHECK(before - available() == bytes);
    OK(FUNCTION(cuMemUnmap, 10020)(on_card, bytes));
    OK(FUNCTION(cuMemUnmap, 10020)(on_host, host_bytes));
    OK(FUNCTION(cuMemAddressFree, 10020)(on_card, bytes));
    OK(FUNCTION(cuMemAddressFree, 10020)(on_host, host_bytes));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY,
           FUNCTION(cuMemCreate, 10020)(&handle, host_bytes, &ON_CARD, 0));
    return before / STEP * STEP; /* all that it could have had */
}

/* torch.cuda.graph: memory is allocated as always while a stream is captured in relaxed mode. */
static size_t of_captures(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUresult result;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(FUNCTION(cuThreadExchangeStreamCaptureMode, 10010)(&mode));
    OK(FUNCTION(cuStreamBeginCapture, 10010)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    while (!(result = FUNCTION(cuMemAlloc, 3020)(&held[held_count], STEP))) {
        OK(FUNCTION(cuMemsetD8Async, 3020)(held[held_count], 1, 1, stream));
        CHECK(++held_count < COUNT(held));
    }
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, result);
    size_t got = held_count * STEP;
    OK(FUNCTION(cuStreamEndCapture, 10000)(stream, &graph));
    OK(FUNCTION(cuGraphInstantiateWithFlags, 11040)(&exec, graph, 0));
    OK(FUNCTION(cuGraphLaunch, 10000)(exec, stream));
    OK(FUNCTION(cuStreamSynchronize, 2000)(stream));
    OK(FUNCTION(cuGraphExecDestroy, 10000)(exec));
    OK(FUNCTION(cuGraphDestroy, 10000)(graph));
    while (held_count)
        OK(FUNCTION(cuMemFree, 3020)(held[--held_count]));
    return got;
}

static const struct {
    const char *name;
    size_t (*run)(void);
} SEQUENCES[] = {
    {"cudaMalloc", of_malloc},
    {"cudaMallocAsync", of_malloc_async},
    {"expandable segments", of_expandable_segments},
    {"NCCL", of_nccl},
    {"torch.cuda.graph", of_captures},
};

int main(int count, char **names)
{
    begin();
    for (size_t i = 0; count == 2 && i < COUNT(SEQUENCES); i++)
        if (!strcmp(SEQUENCES[i].name, names[1]))
            printf("{\"value\": %zu}\n", SEQUENCES[i].run());
    fflush(stdout);
    getchar();
}
