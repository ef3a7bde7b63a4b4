/* Nodes of every kind: each call is turned into the one form that covers them all. */
#include <string.h>

#include "cuda/graphs.h"

/* A graph that was told as a node's own is not to be given to another one. */
static bool acceptable(const CUgraphNodeParams *params)
{
    return params && (params->type != CU_GRAPH_NODE_TYPE_GRAPH ||
                      params->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID);
}

static CUresult add(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
                    const CUgraphNodeParams *params)
{
    ENTER();
    struct graph *found = object_find(graph, KIND_GRAPH);
    struct node *node;
    REQUIRE_VALUE(out && found && acceptable(params));
    CUresult result = node_add(found, before, count, params, &node);
    if (!result)
        *out = (CUgraphNode)node;
    return result;
}

/* The parameters of a node of that type; NULL if it is none. */
static const CUgraphNodeParams *params_of(CUgraphNode handle, CUgraphNodeType type)
{
    struct node *node = object_find(handle, KIND_NODE);
    return node && node->params.type == type ? &node->params : 0;
}

static CUresult set(CUgraphNode handle, const CUgraphNodeParams *params)
{
    ENTER();
    struct node *node = object_find(handle, KIND_NODE);
    REQUIRE_VALUE(node && acceptable(params));
    REQUIRE(!is_memory(node->params.type), CUDA_ERROR_NOT_SUPPORTED);
    return node_assign(node, params);
}

/* Where the memory of an allocating node will be is told in its own parameters. */
CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    (void)dependencyData;
    CUresult result = add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
    if (!result && nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        nodeParams->alloc.dptr = ((struct node *)*phGraphNode)->params.alloc.dptr;
    return result;
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    return cuGraphAddNode_v3(phGraphNode, hGraph, dependencies, 0, numDependencies, nodeParams);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    return set(hNode, nodeParams);
}

CUresult cuGraphNodeGetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node && nodeParams);
    *nodeParams = node->params;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (!copyParams)
        return wrong_value();
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                .memcpy = {.copyCtx = ctx, .copyParams = *copyParams}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    ENTER();
    const CUgraphNodeParams *params = params_of(hNode, CU_GRAPH_NODE_TYPE_MEMCPY);
    REQUIRE_VALUE(params && nodeParams);
    *nodeParams = params->memcpy.copyParams;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    if (!nodeParams)
        return wrong_value();
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                                .memcpy = {.copyParams = *nodeParams}};
    return set(hNode, &params);
}

static CUgraphNodeParams of_memset(const CUDA_MEMSET_NODE_PARAMS *given, CUcontext context)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = {.ctx = context}};
    memcpy(&params.memset, given, sizeof *given);
    return params;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    if (!memsetParams)
        return wrong_value();
    CUgraphNodeParams params = of_memset(memsetParams, ctx);
    return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    ENTER();
    const CUgraphNodeParams *params = params_of(hNode, CU_GRAPH_NODE_TYPE_MEMSET);
    REQUIRE_VALUE(params && nodeParams);
    memcpy(nodeParams, &params->memset, sizeof *nodeParams);
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    if (!nodeParams)
        return wrong_value();
    CUgraphNodeParams params = of_memset(nodeParams, 0);
    return set(hNode, &params);
}

static CUgraphNodeParams of_host(const CUDA_HOST_NODE_PARAMS *given)
{
    return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_HOST,
                               .host = {.fn = given->fn, .userData = given->userData}};
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!nodeParams)
        return wrong_value();
    CUgraphNodeParams params = of_host(nodeParams);
    return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    ENTER();
    const CUgraphNodeParams *params = params_of(hNode, CU_GRAPH_NODE_TYPE_HOST);
    REQUIRE_VALUE(params && nodeParams);
    *nodeParams = (CUDA_HOST_NODE_PARAMS){params->host.fn, params->host.userData};
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!nodeParams)
        return wrong_value();
    CUgraphNodeParams params = of_host(nodeParams);
    return set(hNode, &params);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  CUgraph childGraph)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = childGraph}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    ENTER();
    const CUgraphNodeParams *params = params_of(hNode, CU_GRAPH_NODE_TYPE_GRAPH);
    REQUIRE_VALUE(params && phGraph);
    *phGraph = params->graph.graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
    if (!nodeParams)
        return wrong_value();
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    memcpy(&params.alloc, nodeParams, sizeof *nodeParams);
    CUresult result =
        cuGraphAddNode_v3(phGraphNode, hGraph, dependencies, 0, numDependencies, &params);
    if (!result)
        nodeParams->dptr = params.alloc.dptr;
    return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS *params_out)
{
    ENTER();
    const CUgraphNodeParams *params = params_of(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    REQUIRE_VALUE(params && params_out);
    memcpy(params_out, &params->alloc, sizeof *params_out);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                               const CUgraphNode *dependencies, size_t numDependencies,
                               CUdeviceptr dptr)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = dptr}};
    return add(phGraphNode, hGraph, dependencies, numDependencies, &params);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr *dptr_out)
{
    ENTER();
    const CUgraphNodeParams *params = params_of(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE);
    REQUIRE_VALUE(params && dptr_out);
    *dptr_out = params->free.dptr;
    return CUDA_SUCCESS;
}
