/* Memory without an address (cuMemCreate), and the addresses that it is mapped to. */
#pragma once

#include "cuda/blocks.h"

#define GRANULARITY (2 * MIB)

struct physical {
    struct object object;
    struct device *device; /* NULL: the host's memory, or another process': not counted here */
    CUmemAllocationProp props;
    size_t bytes;
    int fd;           /* holds its bytes */
    unsigned handles; /* how often its handle was given out and not released */
    unsigned mappings;
};

/* It ends when nobody has its handle and nothing maps it. */
void physical_release(struct physical *physical);
