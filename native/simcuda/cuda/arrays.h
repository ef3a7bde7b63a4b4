/* Arrays: memory with a shape, for textures. It has no address a program could use. */
#pragma once

#include "cuda/copies.h"

struct array {
    struct object object;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    struct place place;   /* rows and planes; no start if it has no memory */
    size_t row_bytes, rows, planes;
    size_t bytes;         /* as its shape needs */
    size_t cost_bytes;    /* device memory that the card counts for it: none for a level */
    struct mipmap *level_of;
};

/* Arrays are laid out in tiles, so they cost more than their elements. */
#define ARRAY_STEP (64 * KIB)

struct mipmap {
    struct object object;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    char *start;
    size_t bytes, cost_bytes;
    unsigned level_count;
    struct array *levels[];
};

void array_end(void *array);
void mipmap_end(void *mipmap);

/* Bytes of an element; 0 if the format is not known. */
size_t array_element_bytes(CUarray_format format, unsigned channels);

/* Fill in what follows from the shape; false if it cannot be. */
bool array_measure(struct array *array, const CUDA_ARRAY3D_DESCRIPTOR *shape);

/* Arrays that get their memory later, if at all. */
bool array_has_no_memory(const CUDA_ARRAY3D_DESCRIPTOR *shape);
