/* Graphs: nodes, what they depend on, and copies. */
#include "cuda/graphs.h"

#include <stdlib.h>

struct graph *graph_new(void)
{
    static unsigned ids;
    struct graph *graph = object_new(sizeof *graph, KIND_GRAPH, 0);
    if (!graph)
        return 0;
    graph->id = ++ids;
    graph->end = &graph->first;
    return graph;
}

/* What a node has copied; it can be given other parameters afterwards. */
static void drop_contents(struct node *node)
{
    free(node->arguments);
    if (node->child)
        graph_delete(node->child);
    if (node->reservation)
        reservation_release(node->reservation);
    free(node->before);
}

static void unlink_node(struct node *node)
{
    struct node **link = &node->graph->first;
    while (*link != node)
        link = &(*link)->next;
    *link = node->next;
    if (node->graph->end == &node->next)
        node->graph->end = link;
}

void node_independ(struct node *node, const struct node *on)
{
    size_t kept = 0;
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i] != on)
            node->before[kept++] = node->before[i];
    node->before_count = kept;
}

void node_delete(struct node *node)
{
    unlink_node(node);
    for (struct node *other = node->graph->first; other; other = other->next)
        node_independ(other, node);
    drop_contents(node);
    object_delete(node);
}

void graph_delete(struct graph *graph)
{
    while (graph->first) {
        struct node *node = graph->first;
        graph->first = node->next;
        drop_contents(node);
        object_delete(node);
    }
    graph_release_users(graph);
    object_delete(graph);
}

bool is_memory(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

bool graph_has_memory(const struct graph *graph)
{
    for (const struct node *node = graph->first; node; node = node->next)
        if (is_memory(node->params.type) || (node->child && graph_has_memory(node->child)))
            return true;
    return false;
}

struct exec *graph_exec(const struct graph *graph)
{
    struct exec *exec = object_find(graph->exec, KIND_EXEC);
    return exec && exec->origin_id == graph->id ? exec : 0;
}

bool node_depends_on(const struct node *node, const struct node *other)
{
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i] == other)
            return true;
    return false;
}

bool node_depend(struct node *node, struct node *on)
{
    struct node **more = realloc(node->before, (node->before_count + 1) * sizeof *more);
    if (!more)
        return false;
    node->before = more;
    node->before[node->before_count++] = on;
    return true;
}

static struct node *append_node(struct graph *graph)
{
    static unsigned ids;
    struct node *node = object_new(sizeof *node, KIND_NODE, 0);
    if (!node)
        return 0;
    node->id = ++ids;
    node->graph = graph;
    *graph->end = node;
    graph->end = &node->next;
    return node;
}

static CUresult depend_on_all(struct node *node, const CUgraphNode *before, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct node *on = object_find(before[i], KIND_NODE);
        REQUIRE_VALUE(on && on->graph == node->graph && !node_depends_on(node, on));
        REQUIRE(node_depend(node, on), CUDA_ERROR_OUT_OF_MEMORY);
    }
    return CUDA_SUCCESS;
}

CUresult node_add(struct graph *graph, const CUgraphNode *before, size_t count,
                  const CUgraphNodeParams *params, struct node **out)
{
    REQUIRE_VALUE(before || !count);
    REQUIRE_VALUE(!graph->owned || !is_memory(params->type));
    struct node *node = append_node(graph);
    REQUIRE(node, CUDA_ERROR_OUT_OF_MEMORY);
    node->params.type = params->type;
    CUresult result = depend_on_all(node, before, count);
    if (!result)
        result = node_assign(node, params);
    if (result)
        node_delete(node);
    else
        *out = node;
    return result;
}

/* A node after all that it depends on. While it is looked at it is its own copy: circles show. */
static bool copy_node(struct node *node, struct graph *copy)
{
    if (node->copy)
        return node->copy != node;
    node->copy = node;
    for (size_t i = 0; i < node->before_count; i++)
        if (!copy_node(node->before[i], copy))
            return false;
    struct node *twin = append_node(copy);
    if (!twin)
        return false;
    twin->origin_id = node->id;
    twin->params.type = node->params.type;
    twin->reservation = node->reservation;
    if (twin->reservation)
        twin->reservation->holders++;
    node->copy = twin;
    for (size_t i = 0; i < node->before_count; i++)
        if (!node_depend(twin, node->before[i]->copy))
            return false;
    return !node_assign(twin, &node->params);
}

struct graph *graph_copy(struct graph *graph)
{
    struct graph *copy = graph_new();
    bool complete = copy;
    for (struct node *node = graph->first; node; node = node->next)
        node->copy = 0;
    for (struct node *node = graph->first; complete && node; node = node->next)
        complete = copy_node(node, copy);
    if (complete) {
        graph_share_users(copy, graph);
        return copy;
    }
    if (copy)
        graph_delete(copy);
    return 0;
}

struct node *graph_find_copy(const struct graph *graph, unsigned origin_id)
{
    struct node *found = 0;
    for (struct node *node = graph->first; node && !found; node = node->next)
        found = node->origin_id == origin_id ? node
                : node->child                ? graph_find_copy(node->child, origin_id)
                                             : 0;
    return found;
}
