/* Images of code: which kernels and variables are in them, and how big they are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/api.h"

#define PARAMETERS_MAX 256

struct parameter {
    uint32_t offset, bytes;
};

/* A kernel of an image. */
struct entry {
    struct entry *next;
    unsigned parameter_count; /* 0 also if unknown */
    struct parameter *parameters;
    char name[];
};

/* A variable of an image; it gets its memory when somebody asks for it. */
struct variable {
    struct variable *next;
    size_t bytes;
    CUdeviceptr address;
    unsigned long long block_id; /* of its memory: the address may be another's meanwhile */
    char name[];
};

struct image {
    size_t bytes;
    bool opaque; /* a part cannot be looked into: any name may be in it */
    struct entry *entries;
    struct variable *variables;
};

/* Read PTX text, a cubin, or a fat binary. */
CUresult image_read(struct image *image, const void *data);
CUresult image_read_file(struct image *image, const char *path);
void image_free(struct image *image);

/* Device memory that it takes once it is loaded: its code and its variables. */
size_t image_cost(const struct image *image);

/* A file's contents with a zero after them, to be freed; NULL if it cannot be read. */
char *read_whole_file(const char *path, size_t *bytes);

/* A kernel by name; NULL if it is not in the image. */
struct entry *image_entry(struct image *image, const char *name);

/* For those who read the formats. */
struct entry *image_add_entry(struct image *image, const char *name, size_t name_bytes);
void image_add_variable(struct image *image, const char *name, size_t name_bytes, size_t bytes);
void entry_add_parameter(struct entry *entry, unsigned index, struct parameter parameter);
CUresult image_read_ptx(struct image *image, const char *text);
CUresult image_read_cubin(struct image *image, const void *data);
