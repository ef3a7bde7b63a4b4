/*
 * Graphs that keep what they allocate, launched in turn: `keepers SCENARIO`. Prints the result of
 * each launch (or of what else may be refused), as numbers, for a card or a quota of 4 GiB.
 */
#include "sim_check.h"

enum { GRAPHS_MOST = 3, ROUNDS = 4, AUTO_FREE = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH };

struct keeper {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr pointer;
};

static CUstream stream;
static struct keeper keepers[GRAPHS_MOST];

static CUresult told(CUresult result)
{
    printf("%d ", result);
    return result;
}

static CUgraph allocating(size_t mib, CUdeviceptr *pointer)
{
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = mib * MIB,
    };
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &wanted));
    *pointer = wanted.dptr;
    return graph;
}

/* The same by the allocator of streams, as a captured program uses it. */
static CUgraph capturing(size_t mib, CUdeviceptr *pointer)
{
    CUgraph graph;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(pointer, mib * MIB, stream));
    OK(cuMemsetD8Async(*pointer, 7, MIB, stream));
    OK(cuStreamEndCapture(stream, &graph));
    return graph;
}

/* What a graph of the program's frees: memory of another one. */
static CUgraphExec freeing(CUdeviceptr pointer)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemFreeAsync(pointer, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void make(int count, size_t mib, unsigned flags, CUgraph (*graph)(size_t, CUdeviceptr *))
{
    for (struct keeper *keeper = keepers; keeper < keepers + count; keeper++) {
        keeper->graph = graph(mib, &keeper->pointer);
        OK(cuGraphInstantiate(&keeper->exec, keeper->graph, flags));
    }
}

static CUresult launch(const struct keeper *keeper)
{
    return told(cuGraphLaunch(keeper->exec, stream));
}

static void in_turn(int count)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++)
            launch(&keepers[i]);
}

static void two(void)
{
    make(2, 1500, AUTO_FREE, allocating);
    in_turn(2);
}

static void three(void)
{
    make(3, 1200, AUTO_FREE, allocating);
    in_turn(3);
}

static void one_too_many(void)
{
    make(3, 1500, AUTO_FREE, allocating);
    in_turn(3);
}

static void captured(void)
{
    make(3, 1200, AUTO_FREE, capturing);
    in_turn(3);
}

static void not_freed(void)
{
    make(2, 1500, 0, allocating);
    in_turn(2);
}

static void freed_late(void)
{
    make(2, 1500, 0, allocating);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            if (round)
                told(cuMemFreeAsync(keepers[i].pointer, stream));
            launch(&keepers[i]);
        }
}

static void freed_by_another(void)
{
    CUgraphExec frees[2];
    make(2, 1500, 0, capturing);
    for (int i = 0; i < 2; i++)
        frees[i] = freeing(keepers[i].pointer);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            if (round)
                told(cuGraphLaunch(frees[i], stream));
            launch(&keepers[i]);
        }
}

/* By its own graph, as programs do that have changed a kernel's arguments in it. */
static void updated(void)
{
    CUgraphExecUpdateResultInfo info;
    make(2, 1500, AUTO_FREE, allocating);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            told(cuGraphExecUpdate(keepers[i].exec, keepers[i].graph, &info));
            launch(&keepers[i]);
        }
}

/* By another one, which has addresses of its own: what was kept is freed by the program. */
static void updated_by_another(void)
{
    CUgraphExecUpdateResultInfo info;
    make(2, 1500, AUTO_FREE, allocating);
    in_turn(2);
    CUdeviceptr pointer, before = keepers[0].pointer;
    told(cuGraphExecUpdate(keepers[0].exec, allocating(1600, &pointer), &info));
    launch(&keepers[0]);
    OK(cuMemFree(before));
    in_turn(2);
}

static void uploaded(void)
{
    make(2, 1500, AUTO_FREE, allocating);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 2; i++) {
            told(cuGraphUpload(keepers[i].exec, stream));
            launch(&keepers[i]);
        }
}

/* An executable graph that ended leaves what it kept to the next one of the same graph. */
static void made_again(void)
{
    make(2, 1500, AUTO_FREE, allocating);
    in_turn(2);
    for (int i = 0; i < 2; i++) {
        OK(cuGraphExecDestroy(keepers[i].exec));
        OK(cuGraphInstantiate(&keepers[i].exec, keepers[i].graph, AUTO_FREE));
    }
    in_turn(2);
}

/* Beside it graphs that keep nothing, too large to be there at once. */
static void beside_passing(void)
{
    struct keeper passing[2];
    make(1, 2000, AUTO_FREE, allocating);
    for (int i = 0; i < 2; i++) {
        CUgraphNode nodes[1], freeing_node;
        size_t count = 1;
        passing[i].graph = allocating(1300, &passing[i].pointer);
        OK(cuGraphGetNodes(passing[i].graph, nodes, &count));
        OK(cuGraphAddMemFreeNode(&freeing_node, passing[i].graph, nodes, 1, passing[i].pointer));
        OK(cuGraphInstantiate(&passing[i].exec, passing[i].graph, 0));
    }
    for (int round = 0; round < ROUNDS; round++) {
        launch(&keepers[0]);
        launch(&passing[round % 2]);
    }
}

/* A pool that keeps everything, and linear memory. The one gives way, the other does not. */
static void beside_others(void)
{
    CUmemoryPool pool;
    CUdeviceptr pooled, linear;
    cuuint64_t everything = UINT64_MAX;
    make(2, 1200, AUTO_FREE, capturing);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    OK(cuMemAllocAsync(&pooled, 1200 * MIB, stream));
    in_turn(2);
    told(cuMemAlloc(&linear, 1200 * MIB));
    OK(cuMemFreeAsync(pooled, stream));
    OK(cuStreamSynchronize(stream));
    told(cuMemAlloc(&linear, 1200 * MIB));
    in_turn(2);
    told(cuMemAllocAsync(&pooled, 1200 * MIB, stream));
}

static const struct area SCENARIOS[] = {
    {"two", two},
    {"three", three},
    {"one too many", one_too_many},
    {"captured", captured},
    {"not freed", not_freed},
    {"freed late", freed_late},
    {"freed by another", freed_by_another},
    {"updated", updated},
    {"updated by another", updated_by_another},
    {"uploaded", uploaded},
    {"made again", made_again},
    {"beside passing", beside_passing},
    {"beside others", beside_others},
};

int main(int count, char **names)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < COUNT(SCENARIOS); i++)
        if (wanted(&SCENARIOS[i], count, names))
            SCENARIOS[i].run();
    return 0;
}
