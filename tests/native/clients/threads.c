/* Threads that take and give back memory of every kind at the same time, with contexts of their own
 * that come and go. At the end all is given back, and what is free is what was free before. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

enum { THREADS = 6, STEP = 2 << 20 };

static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                           ".visible .entry nothing()\n{\n    ret;\n}\n";

static int rounds;
static CUcontext shared;
static CUmemoryPool pool;
static CUfunction nothing;

static void must(CUresult result, const char *what)
{
    if (!result)
        return;
    fprintf(stderr, "%s: %d\n", what, result);
    exit(1);
}
#define MUST(call) must(call, #call)

/* Refused for want of room is all right: the threads share a small quota. */
static int had(CUresult result, const char *what)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        must(result, what);
    return !result;
}
#define HAD(call) had(call, #call)

static void linear(size_t bytes)
{
    CUdeviceptr pointer;
    if (HAD(cuMemAlloc(&pointer, bytes)))
        MUST(cuMemFree(pointer));
}

static void ordered(size_t bytes)
{
    CUdeviceptr one, other;
    if (HAD(cuMemAllocAsync(&one, bytes, NULL)))
        MUST(cuMemFreeAsync(one, NULL));
    if (HAD(cuMemAllocFromPoolAsync(&other, bytes, pool, NULL)))
        MUST(cuMemFree(other));
    MUST(cuStreamSynchronize(NULL));
}

static void physical(size_t bytes)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    bytes = (bytes + STEP - 1) / STEP * STEP;
    if (!HAD(cuMemCreate(&handle, bytes, &properties, 0)))
        return;
    MUST(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    MUST(cuMemMap(at, bytes, 0, handle, 0));
    MUST(cuMemRelease(handle));
    MUST(cuMemUnmap(at, bytes));
    MUST(cuMemAddressFree(at, bytes));
}

static void array(size_t bytes)
{
    CUDA_ARRAY_DESCRIPTOR wanted = {1024, bytes / 4096 + 1, CU_AD_FORMAT_FLOAT, 1};
    CUarray made;
    if (HAD(cuArrayCreate(&made, &wanted)))
        MUST(cuArrayDestroy(made));
}

/* What is in a context goes with it. */
static void context(size_t bytes)
{
    CUcontext own;
    CUdeviceptr pointer;
    if (!HAD(cuCtxCreate(&own, NULL, 0, 0)))
        return;
    HAD(cuMemAlloc(&pointer, bytes));
    MUST(cuCtxDestroy(own));
    MUST(cuCtxSetCurrent(shared));
}

/* With and without a stream of its own; graphs carry memory. */
static void launch(size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = bytes};
    CUstream stream;
    CUgraph graph;
    CUgraphNode taken, freed;
    CUgraphExec ready;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    MUST(cuLaunchKernel(nothing, 2, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddMemAllocNode(&taken, graph, NULL, 0, &wanted));
    MUST(cuGraphAddMemFreeNode(&freed, graph, &taken, 1, wanted.dptr));
    MUST(cuGraphInstantiate(&ready, graph, 0));
    HAD(cuGraphLaunch(ready, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(ready));
    MUST(cuGraphDestroy(graph));
    MUST(cuStreamDestroy(stream));
}

static void look(size_t bytes)
{
    size_t left, total;
    (void)bytes;
    MUST(cuMemGetInfo(&left, &total));
    if (left > total)
        must(CUDA_ERROR_UNKNOWN, "more is free than there is");
}

/* The whole quota, of which the context has a part: refused, once pools returned what they can. */
static void too_much(size_t bytes)
{
    size_t left, total;
    CUdeviceptr pointer;
    (void)bytes;
    MUST(cuMemGetInfo(&left, &total));
    if (cuMemAlloc(&pointer, total) != CUDA_ERROR_OUT_OF_MEMORY)
        must(CUDA_ERROR_UNKNOWN, "more was given than there is");
}

static void *work(void *seed)
{
    static void (*const kinds[])(size_t) = {linear,  ordered, physical, array,
                                             context, launch,  look,     too_much};
    unsigned state = (unsigned)(size_t)seed;
    MUST(cuCtxSetCurrent(shared));
    for (int i = 0; i < rounds; i++) {
        int kind = rand_r(&state) % (int)(sizeof kinds / sizeof *kinds);
        kinds[kind](1 + (size_t)rand_r(&state) % (64 << 20));
    }
    return NULL;
}

int main(int count, char **arguments)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    pthread_t threads[THREADS];
    CUmodule module;
    size_t before, after, total;
    rounds = count > 1 ? atoi(arguments[1]) : 100;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&shared, 0));
    MUST(cuCtxSetCurrent(shared));
    MUST(cuMemPoolCreate(&pool, &properties));
    MUST(cuModuleLoadData(&module, code));
    MUST(cuModuleGetFunction(&nothing, module, "nothing"));
    MUST(cuMemGetInfo(&before, &total));
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    MUST(cuCtxSynchronize());
    MUST(cuDeviceGraphMemTrim(0));
    MUST(cuMemGetInfo(&after, &total));
    printf("%zd\n", (ssize_t)(before - after)); /* what was not given back */
    return before != after;
}
