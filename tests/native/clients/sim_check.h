/*
 * For programs that try out the simulated driver: each is a list of areas, and runs those that its
 * arguments name, or all. The first check that fails ends it, and says where.
 */
#pragma once

#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* Kernels that the driver computes itself, one that only takes time, and a variable. */
static const char IMAGE[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                            ".global .align 4 .b8 table[64];\n"
                            ".visible .entry spin_us(.param .u32 us) { ret; }\n"
                            ".visible .entry vadd(.param .u64 a, .param .u64 b, .param .u64 sum,\n"
                            "                     .param .u32 count) { ret; }\n"
                            ".visible .entry fill(.param .u64 to, .param .u32 value,\n"
                            "                     .param .u32 count) { ret; }\n";

#define CHECK(condition)                                                    \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

/* The result of a call, which is told if it is another one. */
#define EXPECT(wanted, call)                                                              \
    do {                                                                                  \
        int got_ = (int)(call);                                                           \
        if (got_ != (int)(wanted)) {                                                      \
            fprintf(stderr, "%s:%d: %s is %d\n", __FILE__, __LINE__, #call, got_);        \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

#define OK(call) EXPECT(CUDA_SUCCESS, call)
#define INVALID(call) EXPECT(CUDA_ERROR_INVALID_VALUE, call)

struct area {
    const char *name;
    void (*run)(void);
};

static inline size_t free_bytes(void)
{
    size_t free, total;
    OK(cuMemGetInfo(&free, &total));
    return free;
}

/* Device memory with bytes of the host, and back. */
static inline CUdeviceptr device_bytes(const void *bytes, size_t count)
{
    CUdeviceptr pointer;
    OK(cuMemAlloc(&pointer, count));
    OK(cuMemcpyHtoD(pointer, bytes, count));
    return pointer;
}

static inline int holds(CUdeviceptr pointer, const void *bytes, size_t count)
{
    char *back = malloc(count);
    CHECK(back);
    OK(cuMemcpyDtoH(back, pointer, count));
    int same = !memcmp(back, bytes, count);
    free(back);
    return same;
}

/* Bytes of which no two nearby are alike. */
static inline void pattern(void *out, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++)
        ((unsigned char *)out)[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

/* What an area takes of the card, it has to give back. */
static inline void run_area(const struct area *area)
{
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    size_t before = free_bytes();
    area->run();
    OK(cuCtxSetCurrent(context));
    OK(cuCtxSynchronize());
    CHECK(free_bytes() == before);
    OK(cuDevicePrimaryCtxRelease(0));
    printf("%s\n", area->name);
}

static inline int wanted(const struct area *area, int count, char **names)
{
    for (int i = 1; i < count; i++)
        if (!strcmp(area->name, names[i]))
            return 1;
    return count == 1;
}

static inline int run_areas(const struct area *areas, size_t area_count, int count, char **names)
{
    int ran = 0;
    OK(cuInit(0));
    for (size_t i = 0; i < area_count; i++)
        if (wanted(&areas[i], count, names)) {
            run_area(&areas[i]);
            ran++;
        }
    return ran ? EXIT_SUCCESS : EXIT_FAILURE;
}
