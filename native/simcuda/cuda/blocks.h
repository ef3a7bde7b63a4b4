/* Blocks of memory, known by address: whose they are, where they are, what they cost. */
#pragma once

#include "cuda/contexts.h"

#define ALLOCATION_STEP 512ull /* sizes of allocations are rounded up to that */

enum origin {
    FROM_DEVICE,     /* cuMemAlloc and its like */
    FROM_LOW,        /* the same with an address of 32 bits */
    FROM_MANAGED,    /* cuMemAllocManaged */
    FROM_POOL,       /* stream-ordered */
    FROM_GRAPH,      /* of a node that allocates */
    FROM_IMAGE,      /* a variable of a module, whose cost is the module's */
    FROM_PHYSICAL,   /* a mapping of cuMemCreate's memory */
    FROM_HOST,       /* pinned host memory */
    FROM_REGISTERED, /* the program's own, made known */
    FROM_IPC,        /* another process' */
};

struct block {
    struct object object;
    CUdeviceptr start;
    size_t bytes;       /* as asked for */
    size_t cost_bytes;  /* device memory that the card counts for it */
    enum origin origin;
    struct device *device;
    unsigned flags;
    unsigned long long id;
    struct pool *pool;
    struct physical *physical;
    struct reservation *reservation; /* of a graph's memory: keeps the address */
    bool accessible; /* of a mapping: has cuMemSetAccess been called? */
    int shared_fd;   /* of memory that was exported to other processes, else -1 */
};

/* Make a block known; it then belongs to a context, or with NULL to the process. */
struct block *block_add(struct context *context, enum origin origin, void *start, size_t bytes);
void block_remove(struct block *block);

/* The block around an address, or the one that begins there. */
struct block *block_around(CUdeviceptr address);
struct block *block_at(CUdeviceptr address);

/* May that many bytes from there be read and written? Device memory must lie within one block. */
bool block_covers(CUdeviceptr address, size_t bytes);

/* All that a block is, undone; for memory that a context takes with it. */
void block_end(void *block);

/* Device memory of a context. */
CUresult block_allocate(struct context *context, enum origin origin, size_t bytes,
                        struct block **block);
