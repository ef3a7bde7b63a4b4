/* Graphs as a program makes, asks and copies them. */
#include <stdio.h>

#include "cuda/graphs.h"

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    ENTER();
    REQUIRE_VALUE(phGraph && !flags);
    struct graph *graph = graph_new();
    REQUIRE(graph, CUDA_ERROR_OUT_OF_MEMORY);
    *phGraph = (CUgraph)graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
    ENTER();
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && !graph->owned);
    graph_delete(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    ENTER();
    struct graph *graph = object_find(originalGraph, KIND_GRAPH);
    REQUIRE_VALUE(phGraphClone && graph && !graph_has_memory(graph));
    struct graph *copy = graph_copy(graph);
    REQUIRE(copy, CUDA_ERROR_OUT_OF_MEMORY);
    *phGraphClone = (CUgraph)copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph)
{
    ENTER();
    struct node *original = object_find(hOriginalNode, KIND_NODE);
    struct graph *copy = object_find(hClonedGraph, KIND_GRAPH);
    REQUIRE_VALUE(phNode && original && copy);
    struct node *found = graph_find_copy(copy, original->id);
    REQUIRE_VALUE(found);
    *phNode = (CUgraphNode)found;
    return CUDA_SUCCESS;
}

/* Without a list the number of nodes is told; with one, how many were written. */
static CUresult list_nodes(const struct graph *graph, CUgraphNode *nodes, size_t *count, bool roots)
{
    size_t found = 0;
    for (struct node *node = graph->first; node; node = node->next) {
        if (roots && node->before_count)
            continue;
        if (nodes && found < *count)
            nodes[found] = (CUgraphNode)node;
        found++;
    }
    for (size_t i = found; nodes && i < *count; i++)
        nodes[i] = 0;
    if (!nodes || found < *count)
        *count = found;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    ENTER();
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && numNodes);
    return list_nodes(graph, nodes, numNodes, false);
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    ENTER();
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && numRootNodes);
    return list_nodes(graph, rootNodes, numRootNodes, true);
}

CUresult cuGraphGetId(CUgraph hGraph, unsigned int *graphId)
{
    ENTER();
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && graphId);
    *graphId = graph->id;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node && type);
    *type = node->params.type;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node && phGraph);
    *phGraph = (CUgraph)node->graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode hNode, unsigned int *nodeId)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node && nodeId);
    *nodeId = node->id;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetToolsId(CUgraphNode hNode, unsigned long long *toolsNodeId)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node && toolsNodeId);
    *toolsNodeId = node->id;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
    ENTER();
    struct node *node = object_find(hNode, KIND_NODE);
    REQUIRE_VALUE(node);
    node_delete(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags)
{
    ENTER();
    (void)flags;
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && path);
    FILE *file = fopen(path, "we");
    REQUIRE(file, CUDA_ERROR_OPERATING_SYSTEM);
    fprintf(file, "digraph simulated {\n");
    for (struct node *node = graph->first; node; node = node->next) {
        fprintf(file, "  n%u [label=\"%u: type %d\"];\n", node->id, node->id, node->params.type);
        for (size_t i = 0; i < node->before_count; i++)
            fprintf(file, "  n%u -> n%u;\n", node->before[i]->id, node->id);
    }
    fprintf(file, "}\n");
    fclose(file);
    return CUDA_SUCCESS;
}
