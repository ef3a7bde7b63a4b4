/* Graphs: their memory nodes take memory when the graph is launched or uploaded, so they are read off
 * when it is instantiated, and when it is updated. */
#include "graphs.h"

static CUresult read_graph(CUgraph graph, struct graph_memory **memory)
{
    *memory = NULL;
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    return fence_enter() == FENCE_HELD ? graph_memory_read(graph, memory) : CUDA_SUCCESS;
}

/* In place of what a graph that had this handle before did. */
static bool write_down(CUgraphExec exec, struct graph_memory *memory)
{
    if (!memory && !graph_memory_of(exec))
        return true;
    pools_enter();
    bool written = graph_memory_put(exec, memory);
    pools_leave();
    return written;
}

static CUresult instantiated(CUresult result, CUgraphExec *exec, uint64_t flags,
                             struct graph_memory *memory)
{
    if (!result && memory)
        memory->frees_first = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    if (!result && write_down(*exec, memory))
        return CUDA_SUCCESS;
    graph_memory_drop(memory);
    if (!result)
        REAL(cuGraphExecDestroy)(*exec);
    return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

#define INSTANTIATE(symbol, parameters, flags, ...)                                                \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        struct graph_memory *memory;                                                               \
        CUresult result = read_graph(graph, &memory);                                              \
        if (result)                                                                                \
            return result;                                                                         \
        return instantiated(REAL(symbol)(exec, graph, __VA_ARGS__), exec, flags, memory);          \
    }
INSTANTIATE(cuGraphInstantiate,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes), 0,
            error, log, bytes)
INSTANTIATE(cuGraphInstantiate_v2,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes), 0,
            error, log, bytes)
INSTANTIATE(cuGraphInstantiateWithFlags,
            (CUgraphExec * exec, CUgraph graph, unsigned long long flags), flags, flags)

/* What is to be uploaded at once is uploaded by us, which is where it is counted. */
#define INSTANTIATE_AND_UPLOAD(symbol, upload)                                                     \
    CUresult symbol(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)   \
    {                                                                                              \
        const uint64_t flag = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;                                  \
        struct graph_memory *memory;                                                               \
        CUresult result = read_graph(graph, &memory);                                              \
        if (result)                                                                                \
            return result;                                                                         \
        bool at_once = fence_enter() == FENCE_HELD && parameters && parameters->flags & flag;      \
        if (at_once)                                                                               \
            parameters->flags &= ~flag;                                                            \
        result = instantiated(REAL(symbol)(exec, graph, parameters), exec,                         \
                              parameters ? parameters->flags : 0, memory);                         \
        if (at_once)                                                                               \
            parameters->flags |= flag;                                                             \
        if (!result && at_once && (result = upload(*exec, parameters->hUploadStream)))             \
            cuGraphExecDestroy(*exec);                                                             \
        return result;                                                                             \
    }
INSTANTIATE_AND_UPLOAD(cuGraphInstantiateWithParams, cuGraphUpload)
INSTANTIATE_AND_UPLOAD(cuGraphInstantiateWithParams_ptsz, cuGraphUpload_ptsz)

/* Under the lock, where there is something to forget: the next graph may get the same handle. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    if (!graph_memory_of(exec))
        return REAL(cuGraphExecDestroy)(exec);
    pools_enter();
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (!result)
        graph_memory_put(exec, NULL);
    pools_leave();
    return result;
}

/* Of an update that was done. What the graph kept at other addresses is not its own any more. */
static void replace(CUgraphExec exec, struct graph_memory *before, struct graph_memory *memory)
{
    bool alike = graph_memory_alike(before, memory);
    if (memory)
        memory->frees_first = before->frees_first;
    if (alike)
        memory->turn = before->turn;
    else
        graph_memory_unmark(before);
    graph_memory_put(exec, memory);
}

typedef CUresult updating(CUgraphExec exec, CUgraph graph, void *const arguments[2]);

/* What it takes from now on is written down before where nothing was: it cannot be undone where
 * there is no memory for it. What failed was not done, says the driver. */
static CUresult update(CUgraphExec exec, CUgraph graph, updating *call, void *const arguments[2])
{
    struct graph_memory *memory;
    CUresult result = read_graph(graph, &memory);
    if (result || (!memory && !graph_memory_of(exec)))
        return result ? result : call(exec, graph, arguments);
    pools_enter();
    struct graph_memory *before = graph_memory_of(exec);
    bool written = before || graph_memory_put(exec, memory);
    result = written ? call(exec, graph, arguments) : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && before)
        replace(exec, before, memory);
    else if (result && !before && written)
        graph_memory_put(exec, NULL);
    else if (result)
        graph_memory_drop(memory);
    pools_leave();
    return result;
}

static CUresult call_update(CUgraphExec exec, CUgraph graph, void *const arguments[2])
{
    return REAL(cuGraphExecUpdate)(exec, graph, arguments[0], arguments[1]);
}

static CUresult call_update_v2(CUgraphExec exec, CUgraph graph, void *const arguments[2])
{
    return REAL(cuGraphExecUpdate_v2)(exec, graph, arguments[0]);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *why)
{
    return update(exec, graph, call_update, (void *[]){node, why});
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *why)
{
    return update(exec, graph, call_update_v2, (void *[]){why, NULL});
}

/* What a child would add to the rest of its graph cannot be told, since nobody tells what it
 * replaces. The driver supports no new parameters of a memory node either. */
static CUresult require_no_memory(CUgraph child)
{
    struct graph_memory *memory;
    CUresult result = read_graph(child, &memory);
    if (memory && memory->devices)
        result = CUDA_ERROR_NOT_SUPPORTED;
    graph_memory_drop(memory);
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CUresult result = require_no_memory(child);
    return result ? result : REAL(cuGraphExecChildGraphNodeSetParams)(exec, node, child);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters)
{
    CUresult result = driver_load(NULL) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_GRAPH)
        result = require_no_memory(parameters->graph);
    return result ? result : REAL(cuGraphExecNodeSetParams)(exec, node, parameters);
}

/* While a stream is captured nothing runs: another graph will do it. */
static CUresult run_with_memory(struct run run)
{
    bool held = fence_enter() == FENCE_HELD && graph_memory_of(run.exec);
    if (!held || stream_capturing(run.stream, run.per_thread))
        return run.call(run.exec, run.stream);
    pools_enter();
    struct graph_memory *memory = graph_memory_of(run.exec);
    CUresult result = memory ? graph_memory_run(memory, &run) : run.call(run.exec, run.stream);
    pools_leave();
    return result;
}

#define UPLOAD(symbol, is_per_thread)                                                              \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                             \
    {                                                                                              \
        int state = fence_enter();                                                                 \
        if (state != FENCE_HELD && state != FENCE_OPEN)                                            \
            return fence_refusal(state);                                                           \
        return run_with_memory((struct run){REAL(symbol), exec, stream, is_per_thread, false});    \
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
        result = run_with_memory((struct run){REAL(symbol), exec, stream, is_per_thread, true});   \
        pace_after(&work, result);                                                                 \
        return result;                                                                             \
    }
LAUNCH(cuGraphLaunch, false)
LAUNCH(cuGraphLaunch_ptsz, true)
