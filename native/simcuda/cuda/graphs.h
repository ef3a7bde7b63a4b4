/*
 * Graphs: work that is described once and launched often.
 *
 * A node keeps its parameters in the one form that covers all kinds, CUgraphNodeParams, with what
 * they point to copied. An executable graph is a copy of a graph, with its nodes in an order in
 * which they can run.
 */
#pragma once

#include "cuda/events.h"
#include "cuda/launches.h"

/* Addresses that a node allocates memory at: the same ones at each launch, in each copy. */
struct reservation {
    void *start;
    size_t bytes;
    unsigned holders;
};

struct node {
    struct object object;
    struct node *next; /* in the graph */
    struct graph *graph;
    unsigned id;
    unsigned origin_id; /* of the node it is a copy of, or 0 */
    CUgraphNodeParams params;
    void **arguments; /* of a kernel, copied: what its parameters point to */
    struct graph *child;
    struct reservation *reservation;
    struct node **before; /* what it depends on */
    size_t before_count;
    struct node *copy; /* while its graph is copied */
    bool disabled;     /* in an executable graph */
};

struct graph {
    struct object object;
    unsigned id;
    bool owned; /* by a node, or by an executable graph: nobody else may destroy it */
    bool moved; /* into a node, which has no copy of its own */
    CUgraphExec exec; /* the last one, if it has memory nodes: see graph_exec */
    struct node *first, **end;
    struct retained *retained; /* user objects that live as long as it does */
};

struct exec {
    struct object object;
    unsigned id;
    unsigned origin_id; /* of the graph it was made from */
    unsigned long long flags;
    struct graph *graph;
};

struct graph *graph_new(void);
void graph_delete(struct graph *graph);

/* A copy, its nodes in an order in which they can run; NULL if there is none, or no memory. */
struct graph *graph_copy(struct graph *graph);

/* Nodes that allocate or free, in it or in the graphs inside of it. */
bool graph_has_memory(const struct graph *graph);
bool is_memory(CUgraphNodeType type);

/* The one executable graph that a graph with memory nodes may have; NULL: it has none now. */
struct exec *graph_exec(const struct graph *graph);

/* A node with checked and copied parameters, depending on others of the same graph. */
CUresult node_add(struct graph *graph, const CUgraphNode *before, size_t count,
                  const CUgraphNodeParams *params, struct node **node);
void node_delete(struct node *node);

/* Check parameters and copy them into a node. Its type never changes. */
CUresult node_assign(struct node *node, const CUgraphNodeParams *params);

bool node_depends_on(const struct node *node, const struct node *other);
bool node_depend(struct node *node, struct node *on);
void node_independ(struct node *node, const struct node *on);

/* Whether two copies have the same shape, node by node, with the graphs inside of them; if not,
 * which node of the other one differs. */
CUgraphExecUpdateResult graph_compare(const struct graph *mine, const struct graph *other,
                                      const struct node **culprit);

/* The launch that a kernel node describes. */
struct launch node_launch(const struct node *node);

void reservation_release(struct reservation *reservation);

/* The node of a copy that was made from another one. */
struct node *graph_find_copy(const struct graph *graph, unsigned origin_id);

/* Run a graph on a stream that has room for it. */
CUresult graph_run(struct graph *graph, struct stream *stream, bool free_first);

/* Reserve the device memory that a graph will allocate, without using it. */
CUresult graph_reserve(const struct graph *graph);

void graph_release_users(struct graph *graph);
void graph_share_users(struct graph *copy, const struct graph *graph);
