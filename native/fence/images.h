/* Images of code, and how much they take at most. */
#pragma once
#include "fence.h"

struct image {
    const void *data;
    uint64_t bytes; /* with its variables, as far as these can be seen */
    bool packed;    /* they cannot */
    char *copy;     /* of a file */
    size_t copied_bytes;
};

struct image image_in_memory(const void *data);
CUresult image_in_file(const char *path, struct image *image);
void image_close(struct image *image);
