/* Kernel nodes, in the two versions of their parameters, and their attributes. */
#include <string.h>

#include "cuda/graphs.h"

/* Version 1 is the beginning of version 2; both are beginnings of what a node keeps. */
static CUgraphNodeParams of_kernel(const void *given, size_t bytes)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&params.kernel, given, bytes);
    return params;
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                    const void *given, size_t bytes)
{
    if (!given)
        return wrong_value();
    CUgraphNodeParams params = of_kernel(given, bytes);
    return cuGraphAddNode_v3(node, graph, before, 0, count, &params);
}

static CUresult get(CUgraphNode handle, void *out, size_t bytes)
{
    ENTER();
    struct node *node = object_find(handle, KIND_NODE);
    REQUIRE_VALUE(node && node->params.type == CU_GRAPH_NODE_TYPE_KERNEL && out);
    memcpy(out, &node->params.kernel, bytes);
    return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode handle, const void *given, size_t bytes)
{
    if (!given)
        return wrong_value();
    CUgraphNodeParams params = of_kernel(given, bytes);
    return cuGraphNodeSetParams_v2(handle, &params);
}

static CUresult set_in(CUgraphExec exec, CUgraphNode handle, const void *given, size_t bytes)
{
    if (!given)
        return wrong_value();
    CUgraphNodeParams params = of_kernel(given, bytes);
    return cuGraphExecNodeSetParams(exec, handle, &params);
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    return add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams, sizeof *nodeParams);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    return add(phGraphNode, hGraph, dependencies, numDependencies, nodeParams, sizeof *nodeParams);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    return get(hNode, nodeParams, sizeof *nodeParams);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    return get(hNode, nodeParams, sizeof *nodeParams);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    return set(hNode, nodeParams, sizeof *nodeParams);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    return set(hNode, nodeParams, sizeof *nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    return set_in(hGraphExec, hNode, nodeParams, sizeof *nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    return set_in(hGraphExec, hNode, nodeParams, sizeof *nodeParams);
}

/* Attributes of launches change nothing here: accepted, and told as none. */
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
    ENTER();
    REQUIRE_VALUE(object_find(dst, KIND_NODE) && object_find(src, KIND_NODE));
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue *value_out)
{
    ENTER();
    (void)attr;
    REQUIRE_VALUE(object_find(hNode, KIND_NODE) && value_out);
    memset(value_out, 0, sizeof *value_out);
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue *value)
{
    ENTER();
    (void)attr;
    REQUIRE_VALUE(object_find(hNode, KIND_NODE) && value);
    return CUDA_SUCCESS;
}
