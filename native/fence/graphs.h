/* What graphs allocate and free, as the files about graphs know it. */
#pragma once
#include "pools.h"

enum { GRAPH_DEVICES = 64 }; /* graphs with memory on a later one are refused */

struct memory_node {
    CUdeviceptr address; /* the same at each launch */
    uint64_t bytes;
    int16_t device;
    bool frees; /* which may be memory of another graph */
};

/* The memory nodes of a graph, with those of the graphs inside of it. */
struct graph_memory {
    size_t mapped_bytes;
    uint64_t demand_bytes[GRAPH_DEVICES]; /* of all nodes that allocate */
    uint64_t devices;                     /* a bit for each that it has a demand on */
    uint32_t turn; /* `graph_turn` when it last ran or was uploaded; 0: it was not */
    bool frees_first; /* what it keeps, at each launch */
    uint32_t count;
    struct memory_node nodes[];
};

/* Reads them off; NULL in `memory`: there are none. Any error: nobody can tell what the graph will
 * take, so it must not come to run. */
CUresult graph_memory_read(CUgraph graph, struct graph_memory **memory);
bool graph_memory_alike(const struct graph_memory *a, const struct graph_memory *b);
void graph_memory_drop(struct graph_memory *memory);

struct run { /* a launch or an upload of a graph */
    CUresult (*call)(CUgraphExec, CUstream);
    CUgraphExec exec;
    CUstream stream;
    bool per_thread, launches;
};

/* Between pools_enter and pools_leave: what an executable graph does with memory. */
struct graph_memory *graph_memory_of(CUgraphExec exec); /* NULL: nothing */
/* In place of what was known, which is dropped; false: there is no memory to write it down. */
bool graph_memory_put(CUgraphExec exec, struct graph_memory *memory);
/* Addresses that it has left allocated, from now on as if it had not: more is taken than needed. */
void graph_memory_unmark(const struct graph_memory *memory);
CUresult graph_memory_run(struct graph_memory *memory, const struct run *run);
