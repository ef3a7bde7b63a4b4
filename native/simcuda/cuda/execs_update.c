/* cuGraphExecUpdate: give an executable graph the parameters of a graph of the same shape. */
#include "cuda/graphs.h"

/* Graphs are compared in an order in which they can run, hence copied first. */
static CUgraphExecUpdateResult compare(const struct graph *mine, const struct graph *other,
                                       const struct node **culprit)
{
    const struct node *a = mine->first, *b = other->first;
    for (; a && b; a = a->next, b = b->next) {
        *culprit = b;
        if (a->params.type != b->params.type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->before_count != b->before_count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (a->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
            a->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    }
    *culprit = b;
    return a || b ? CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED : CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult update(struct exec *exec, struct graph *graph,
                                      unsigned *culprit_id)
{
    const struct node *culprit = 0;
    struct graph *copy = graph_copy(graph);
    if (!copy)
        return CU_GRAPH_EXEC_UPDATE_ERROR;
    CUgraphExecUpdateResult result = compare(exec->graph, copy, &culprit);
    *culprit_id = culprit ? culprit->origin_id : 0;
    struct node *mine = exec->graph->first;
    for (struct node *other = copy->first; !result && other; other = other->next, mine = mine->next)
        if (node_assign(mine, &other->params))
            result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    graph_delete(copy);
    return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo)
{
    ENTER();
    struct exec *exec = object_find(hGraphExec, KIND_EXEC);
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    unsigned culprit_id = 0;
    REQUIRE_VALUE(exec && graph && resultInfo);
    *resultInfo = (CUgraphExecUpdateResultInfo){.result = update(exec, graph, &culprit_id)};
    for (struct node *node = graph->first; node; node = node->next)
        if (node->id == culprit_id && resultInfo->result)
            resultInfo->errorNode = (CUgraphNode)node;
    return resultInfo->result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info = {0};
    if (!updateResult_out)
        return wrong_value();
    CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
    *updateResult_out = info.result;
    if (hErrorNode_out)
        *hErrorNode_out = info.errorNode;
    return result;
}
