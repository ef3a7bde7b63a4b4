/* Kernels that really do something: spin_us takes time, vadd and fill compute. */
#include "cuda/builtins.h"

#include <string.h>

#include "cuda/blocks.h"

/* In a packed buffer each argument is aligned to its own size. */
static size_t packed_offset(const struct builtin *builtin, unsigned index)
{
    size_t offset = 0;
    for (unsigned i = 0; i <= index; i++) {
        offset = round_up(offset, builtin->argument_bytes[i]);
        if (i < index)
            offset += builtin->argument_bytes[i];
    }
    return offset;
}

static bool read_argument(const struct launch *launch, unsigned index, void *value)
{
    const struct builtin *builtin = launch->routine->builtin;
    size_t bytes = builtin->argument_bytes[index], offset = packed_offset(builtin, index);
    const void *from = 0;
    if (launch->arguments)
        from = launch->arguments[index];
    else if (launch->packed && offset + bytes <= launch->packed_bytes)
        from = (const char *)launch->packed + offset;
    if (from)
        memcpy(value, from, bytes);
    return from;
}

static uint64_t spin_duration_ns(const struct launch *launch)
{
    uint32_t us = 0;
    read_argument(launch, 0, &us);
    return us * NS_PER_US;
}

/* vadd(const float *a, const float *b, float *sum, int count) */
static CUresult vadd(const struct launch *launch)
{
    CUdeviceptr a, b, sum;
    int32_t count;
    if (!read_argument(launch, 0, &a) || !read_argument(launch, 1, &b) ||
        !read_argument(launch, 2, &sum) || !read_argument(launch, 3, &count))
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = count > 0 ? (size_t)count * sizeof(float) : 0;
    if (!bytes)
        return CUDA_SUCCESS;
    if (!block_covers(a, bytes) || !block_covers(b, bytes) || !block_covers(sum, bytes))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int32_t i = 0; i < count; i++)
        ((float *)sum)[i] = ((const float *)a)[i] + ((const float *)b)[i];
    return CUDA_SUCCESS;
}

/* fill(uint32_t *start, uint32_t value, int count) */
static CUresult fill(const struct launch *launch)
{
    CUdeviceptr start;
    uint32_t value;
    int32_t count;
    if (!read_argument(launch, 0, &start) || !read_argument(launch, 1, &value) ||
        !read_argument(launch, 2, &count))
        return CUDA_ERROR_INVALID_VALUE;
    if (count <= 0)
        return CUDA_SUCCESS;
    if (!block_covers(start, (size_t)count * sizeof value))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int32_t i = 0; i < count; i++)
        ((uint32_t *)start)[i] = value;
    return CUDA_SUCCESS;
}

static const struct builtin BUILTINS[] = {
    {"spin_us", 1, {4}, 0, spin_duration_ns},
    {"vadd", 4, {8, 8, 8, 4}, vadd, 0},
    {"fill", 3, {8, 4, 4}, fill, 0},
};

const struct builtin *builtin_find(const char *name)
{
    for (size_t i = 0; i < sizeof BUILTINS / sizeof BUILTINS[0]; i++)
        if (!strcmp(BUILTINS[i].name, name))
            return &BUILTINS[i];
    return 0;
}
