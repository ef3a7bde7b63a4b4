/* The few kernels that really do something, known by their names. */
#pragma once

#include "cuda/launches.h"

struct builtin {
    const char *name;
    unsigned argument_count;
    unsigned char argument_bytes[4];
    CUresult (*compute)(const struct launch *launch);          /* NULL: nothing */
    uint64_t (*duration_ns)(const struct launch *launch);      /* NULL: that of its name */
};

const struct builtin *builtin_find(const char *name);
