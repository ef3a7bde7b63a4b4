/* What cuGetProcAddress offers; the table is generated, sorted by name, then by version. */
#pragma once

#include "cuda/api.h"

struct offer {
    const char *name;
    int version;    /* 11020: since CUDA 11.2 */
    int per_thread; /* the default stream is that of the thread */
    void *function;
};

extern const struct offer offers[];
extern const unsigned offer_count;

/* Another address at which a function of the table can be called; see aliases.c. */
void *offer_alias(unsigned index);
