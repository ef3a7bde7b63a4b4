/* Edges of graphs. Data of edges (ports of kernels) is accepted and always told as none. */
#include <string.h>

#include "cuda/graphs.h"

/* A list that the caller gave room for: what does not fit is only counted. */
struct list {
    CUgraphNode *from, *to;
    CUgraphEdgeData *data;
    size_t room, count;
};

static void list_edge(struct list *list, struct node *from, struct node *to)
{
    if (list->count < list->room) {
        if (list->from)
            list->from[list->count] = (CUgraphNode)from;
        if (list->to)
            list->to[list->count] = (CUgraphNode)to;
        if (list->data)
            memset(&list->data[list->count], 0, sizeof list->data[0]);
    }
    list->count++;
}

static void list_edges_to(struct list *list, struct node *to)
{
    for (size_t i = 0; i < to->before_count; i++)
        list_edge(list, to->before[i], to);
}

/* With room, how many were written is told; without a list, how many there are. */
static void tell(const struct list *list, size_t *count)
{
    bool asked_for_list = list->from || list->to;
    *count = asked_for_list ? earlier(list->count, list->room) : list->count;
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edgeData, size_t *numEdges)
{
    ENTER();
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && numEdges && !from == !to);
    struct list list = {from, to, edgeData, from ? *numEdges : 0, 0};
    for (struct node *node = graph->first; node; node = node->next)
        list_edges_to(&list, node);
    tell(&list, numEdges);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return cuGraphGetEdges_v2(hGraph, from, to, 0, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node && numDependencies);
    struct list list = {dependencies, 0, edgeData, dependencies ? *numDependencies : 0, 0};
    list_edges_to(&list, node);
    tell(&list, numDependencies);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, 0, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                         CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node && numDependentNodes);
    struct list list = {0, dependentNodes, edgeData, dependentNodes ? *numDependentNodes : 0, 0};
    for (struct node *other = node->graph->first; other; other = other->next)
        if (node_depends_on(other, node))
            list_edge(&list, node, other);
    tell(&list, numDependentNodes);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                      size_t *numDependentNodes)
{
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, 0, numDependentNodes);
}

/* Both ends of an edge, of that graph; NULL if one of them is not. */
static struct node *ends(const struct graph *graph, CUgraphNode from, CUgraphNode to,
                         struct node **on)
{
    struct node *node = object_find(to, KIND_NODE);
    *on = object_find(from, KIND_NODE);
    return node && *on && node != *on && node->graph == graph && (*on)->graph == graph ? node : 0;
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    ENTER();
    (void)edgeData;
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && ((from && to) || !numDependencies));
    for (size_t i = 0; i < numDependencies; i++) {
        struct node *on, *node = ends(graph, from[i], to[i], &on);
        REQUIRE_VALUE(node && !node_depends_on(node, on));
        REQUIRE(node_depend(node, on), CUDA_ERROR_OUT_OF_MEMORY);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies)
{
    return cuGraphAddDependencies_v2(hGraph, from, to, 0, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                      size_t numDependencies)
{
    ENTER();
    (void)edgeData;
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && ((from && to) || !numDependencies));
    for (size_t i = 0; i < numDependencies; i++) {
        struct node *on, *node = ends(graph, from[i], to[i], &on);
        REQUIRE_VALUE(node && node_depends_on(node, on));
        node_independ(node, on);
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies)
{
    return cuGraphRemoveDependencies_v2(hGraph, from, to, 0, numDependencies);
}
