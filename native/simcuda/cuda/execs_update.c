/* cuGraphExecUpdate: give an executable graph the parameters of a graph of the same shape. */
#include "cuda/graphs.h"

CUgraphExecUpdateResult graph_compare(const struct graph *mine, const struct graph *other,
                                      const struct node **culprit)
{
    const struct node *inner, *a = mine->first, *b = other->first;
    for (; a && b; a = a->next, b = b->next) {
        *culprit = b;
        if (a->params.type != b->params.type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->before_count != b->before_count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (a->child && graph_compare(a->child, b->child, &inner))
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    }
    *culprit = b;
    return a || b ? CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED : CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Memory is allocated at other addresses from then on: those of the other graph's nodes. */
static void swap_reservations(struct node *mine, struct node *other)
{
    struct reservation *reservation = mine->reservation;
    mine->reservation = other->reservation;
    other->reservation = reservation;
}

static bool assign_all(struct graph *graph, struct graph *copy)
{
    struct node *mine = graph->first;
    bool fine = true;
    for (struct node *other = copy->first; fine && other; other = other->next, mine = mine->next) {
        swap_reservations(mine, other);
        fine = mine->child ? assign_all(mine->child, other->child)
                           : !node_assign(mine, &other->params);
    }
    return fine;
}

/* Graphs are compared in an order in which they can run, hence copied first. */
static CUgraphExecUpdateResult update(struct exec *exec, struct graph *graph,
                                      unsigned *culprit_id)
{
    const struct node *culprit = 0;
    const struct exec *its_own = graph_exec(graph);
    bool available = !graph->moved && (!its_own || its_own == exec);
    struct graph *copy = available ? graph_copy(graph) : 0;
    if (!copy)
        return CU_GRAPH_EXEC_UPDATE_ERROR;
    CUgraphExecUpdateResult result = graph_compare(exec->graph, copy, &culprit);
    *culprit_id = culprit ? culprit->origin_id : 0;
    if (!result && !assign_all(exec->graph, copy))
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
