/* What a call of the driver costs: `calls launch|alloc|meminfo COUNT LIVE`.
 *
 * LIVE allocations are made first. Then, for each line on stdin, COUNT calls are timed as a whole,
 * and COUNT / 10 one by one, which is where the slowest hundredth is seen; reading the clock twice
 * is then part of the time. So two clients can be measured in turns. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20 };

static CUfunction spin;

static void launch(void)
{
    CHECK(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0));
}

static void alloc(void)
{
    CUdeviceptr block;
    CHECK(cuMemAlloc(&block, MIB));
    CHECK(cuMemFree(block));
}

static void meminfo(void)
{
    size_t free_bytes, total_bytes;
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
}

static const struct {
    const char *name;
    void (*call)(void);
} CALLS[] = {{"launch", launch}, {"alloc", alloc}, {"meminfo", meminfo}};

static void (*find(const char *name))(void)
{
    for (size_t i = 0; name && i < sizeof CALLS / sizeof *CALLS; i++)
        if (!strcmp(CALLS[i].name, name))
            return CALLS[i].call;
    fprintf(stderr, "client: calls launch|alloc|meminfo COUNT LIVE\n");
    exit(1);
}

static double mean_ns(void (*call)(void), uint64_t count)
{
    uint64_t began = now_ns();
    for (uint64_t i = 0; i < count; i++)
        call();
    return (double)(now_ns() - began) / (double)count;
}

static int order(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void each_ns(void (*call)(void), uint64_t count, uint64_t *took)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t began = now_ns();
        call();
        took[i] = now_ns() - began;
    }
    qsort(took, count, sizeof *took, order);
}

static void turn(void (*call)(void), uint64_t count, uint64_t *took)
{
    uint64_t single = count / 10 + 1;
    double mean = mean_ns(call, count);
    each_ns(call, single, took);
    printf("{\"mean_ns\": %.3f, \"p99_ns\": %llu}\n", mean,
           (unsigned long long)took[single * 99 / 100]);
}

int time_calls(char **arguments)
{
    void (*call)(void) = find(arguments[0]);
    uint64_t count = number(arguments[1]), live = number(arguments[2]);
    uint64_t *took = malloc((count / 10 + 1) * sizeof *took);
    if (!took)
        return 1;
    spin = open_card();
    for (CUdeviceptr block; live; live--)
        CHECK(cuMemAlloc(&block, MIB));
    mean_ns(call, count); /* warm */
    while (ready_for_turn())
        turn(call, count, took);
    free(took);
    return 0;
}
