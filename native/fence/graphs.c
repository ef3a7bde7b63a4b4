/* Graphs: their memory nodes take memory when the graph is launched or uploaded, however they got
 * into it (added, captured, inside a child graph); so they are read off when it is instantiated. */
#define _GNU_SOURCE
#include "fence.h"
#include <sys/mman.h>

enum { DEEPEST_CHILD = 32 };

struct demand {
    CUdevice device;
    uint64_t bytes;
};

static void add_graph(CUgraph graph, struct demand *demand, int depth);

static void add_node(CUgraphNode node, struct demand *demand, int depth)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory;
    CUgraph child;
    int type = -1;
    REAL(cuGraphNodeGetType)(node, &type);
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !REAL(cuGraphMemAllocNodeGetParams)(node, &memory) &&
        on_card(memory.poolProps.location.type)) {
        demand->device = memory.poolProps.location.id;
        demand->bytes += round_up(memory.bytesize, GRAIN_BYTES);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && !REAL(cuGraphChildGraphNodeGetGraph)(node, &child))
        add_graph(child, demand, depth + 1);
}

static void add_graph(CUgraph graph, struct demand *demand, int depth)
{
    size_t count = 0;
    if (depth > DEEPEST_CHILD || REAL(cuGraphGetNodes)(graph, NULL, &count) || !count)
        return;
    size_t bytes = count * sizeof(CUgraphNode);
    CUgraphNode *nodes =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return;
    if (!REAL(cuGraphGetNodes)(graph, nodes, &count))
        for (size_t i = 0; i < count; i++)
            add_node(nodes[i], demand, depth);
    munmap(nodes, bytes);
}

static CUresult instantiated(CUresult result, CUgraph graph, CUgraphExec *exec)
{
    struct demand demand = {0};
    if (result || fence_enter() != FENCE_HELD)
        return result;
    add_graph(graph, &demand, 0);
    struct ledger_entry entry = {.key = (uint64_t)*exec,
                                 .bytes = demand.bytes,
                                 .card = (int16_t)demand.device,
                                 .kind = LEDGER_GRAPH};
    if (demand.bytes)
        ledger_add(&entry);
    return result;
}

#define INSTANTIATE(symbol, parameters, ...)                                                       \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        return driver_load(NULL) ? instantiated(REAL(symbol)(exec, graph, __VA_ARGS__), graph, exec) \
                                 : CUDA_ERROR_NO_DEVICE;                                           \
    }
INSTANTIATE(cuGraphInstantiate,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes), error,
            log, bytes)
INSTANTIATE(cuGraphInstantiate_v2,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes), error,
            log, bytes)
INSTANTIATE(cuGraphInstantiateWithFlags,
            (CUgraphExec * exec, CUgraph graph, unsigned long long flags), flags)

/* What is to be uploaded at once is uploaded by us, which is where it is counted. */
#define INSTANTIATE_AND_UPLOAD(symbol, upload)                                                     \
    CUresult symbol(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)   \
    {                                                                                              \
        const uint64_t flag = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;                                  \
        if (!driver_load(NULL))                                                                    \
            return CUDA_ERROR_NO_DEVICE;                                                           \
        bool at_once = fence_enter() == FENCE_HELD && parameters && parameters->flags & flag;      \
        if (at_once)                                                                               \
            parameters->flags &= ~flag;                                                            \
        CUresult result = instantiated(REAL(symbol)(exec, graph, parameters), graph, exec);        \
        if (at_once)                                                                               \
            parameters->flags |= flag;                                                             \
        if (!result && at_once && (result = upload(*exec, parameters->hUploadStream)))             \
            cuGraphExecDestroy(*exec);                                                             \
        return result;                                                                             \
    }
INSTANTIATE_AND_UPLOAD(cuGraphInstantiateWithParams, cuGraphUpload)
INSTANTIATE_AND_UPLOAD(cuGraphInstantiateWithParams_ptsz, cuGraphUpload_ptsz)

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct ledger_entry entry;
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    bool known = ledger_remove(LEDGER_GRAPH, (uint64_t)exec, &entry);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (result && known)
        ledger_add(&entry);
    return result;
}

static CUresult run_with_memory(struct run run)
{
    struct ledger_entry graph;
    if (fence_enter() != FENCE_HELD || !ledger_find(LEDGER_GRAPH, (uint64_t)run.exec, &graph))
        return run.call(run.exec, run.stream);
    return graph_memory_take(&graph, &run);
}

#define UPLOAD(symbol, is_per_thread)                                                              \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                             \
    {                                                                                              \
        int state = fence_enter();                                                                 \
        if (state != FENCE_HELD && state != FENCE_OPEN)                                            \
            return fence_refusal(state);                                                           \
        return run_with_memory((struct run){REAL(symbol), exec, stream, is_per_thread});           \
    }
UPLOAD(cuGraphUpload, false)
UPLOAD(cuGraphUpload_ptsz, true)

#define LAUNCH(symbol, is_per_thread)                                                              \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                             \
    {                                                                                              \
        struct work work = {.key = exec, .stream = stream, .per_thread = is_per_thread};           \
        CUresult result = pace_before(&work);                                                      \
        if (result)                                                                                \
            return result;                                                                         \
        result = run_with_memory((struct run){REAL(symbol), exec, stream, is_per_thread});         \
        pace_after(&work, result);                                                                 \
        return result;                                                                             \
    }
LAUNCH(cuGraphLaunch, false)
LAUNCH(cuGraphLaunch_ptsz, true)
