/* Executable graphs: made, changed, launched. */
#include "cuda/captures.h"
#include "cuda/graphs.h"

static CUresult instantiate(CUgraphExec *out, CUgraph handle, unsigned long long flags)
{
    ENTER();
    static unsigned ids;
    struct graph *graph = object_find(handle, KIND_GRAPH);
    REQUIRE_VALUE(out && graph && !graph->moved && !graph_exec(graph));
    struct graph *copy = graph_copy(graph);
    REQUIRE_VALUE(copy);
    struct exec *exec = object_new(sizeof *exec, KIND_EXEC, 0);
    if (!exec) {
        graph_delete(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    copy->owned = true;
    exec->id = ++ids;
    exec->flags = flags;
    exec->graph = copy;
    exec->origin_id = graph->id;
    graph->exec = graph_has_memory(graph) ? (CUgraphExec)exec : 0;
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags)
{
    return instantiate(phGraphExec, hGraph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize)
{
    CUresult result = instantiate(phGraphExec, hGraph, 0);
    if (phErrorNode)
        *phErrorNode = 0;
    if (logBuffer && bufferSize)
        *logBuffer = 0;
    return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    if (!instantiateParams)
        return wrong_value();
    CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->hErrNode_out = 0;
    instantiateParams->result_out =
        result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
    if (!result && instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        result = cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    ENTER();
    struct exec *exec = object_find(hGraphExec, KIND_EXEC);
    REQUIRE_VALUE(exec);
    graph_delete(exec->graph);
    object_delete(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    ENTER();
    struct exec *exec = object_find(hGraphExec, KIND_EXEC);
    REQUIRE_VALUE(exec && flags);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec hGraphExec, unsigned int *graphId)
{
    ENTER();
    struct exec *exec = object_find(hGraphExec, KIND_EXEC);
    REQUIRE_VALUE(exec && graphId);
    *graphId = exec->id;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream)
{
    ENTER_STREAM(stream, hStream);
    (void)stream;
    struct exec *exec = object_find(hGraph, KIND_EXEC);
    REQUIRE_VALUE(exec);
    return graph_reserve(exec->graph);
}

/* Launched on a stream that is captured, it becomes a node of the other graph. */
CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream)
{
    ENTER_LAUNCH(stream, hStream);
    struct exec *exec = object_find(hGraph, KIND_EXEC);
    REQUIRE_VALUE(exec);
    if (stream->capture)
        return capture_graph(stream, exec->graph);
    bool free_first = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    return graph_run(exec->graph, stream, free_first);
}

/* The node of an executable graph that was made from a node of the graph. */
static struct node *own_node(CUgraphExec handle, CUgraphNode original)
{
    struct exec *exec = object_find(handle, KIND_EXEC);
    struct node *node = object_find(original, KIND_NODE);
    return exec && node ? graph_find_copy(exec->graph, node->id) : 0;
}

/* A child is copied, and must have the shape of the one that was there. */
static bool fits_child(const struct node *node, const CUgraphNodeParams *params)
{
    const struct node *culprit;
    struct graph *child = object_find(params->graph.graph, KIND_GRAPH);
    bool clones = params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
    struct graph *copy = child && clones ? graph_copy(child) : 0;
    bool fits = copy && !graph_compare(node->child, copy, &culprit);
    if (copy)
        graph_delete(copy);
    return fits;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams *nodeParams)
{
    ENTER();
    struct node *node = own_node(hGraphExec, hNode);
    REQUIRE_VALUE(node && nodeParams);
    REQUIRE(!is_memory(node->params.type), CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE_VALUE(!node->child || fits_child(node, nodeParams));
    return node_assign(node, nodeParams);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (!copyParams)
        return wrong_value();
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                .memcpy = {.copyCtx = ctx, .copyParams = *copyParams}};
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    if (!memsetParams)
        return wrong_value();
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .memset = {memsetParams->dst, memsetParams->pitch, memsetParams->value,
                   memsetParams->elementSize, memsetParams->width, memsetParams->height, ctx},
    };
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!nodeParams)
        return wrong_value();
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_HOST,
        .host = {.fn = nodeParams->fn, .userData = nodeParams->userData},
    };
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    ENTER();
    struct node *node = own_node(hGraphExec, hNode);
    REQUIRE_VALUE(node);
    node->disabled = !isEnabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
    ENTER();
    struct node *node = own_node(hGraphExec, hNode);
    REQUIRE_VALUE(node && isEnabled);
    *isEnabled = !node->disabled;
    return CUDA_SUCCESS;
}
