/* Allocates and frees near the quota as fast as it can, until it is killed or its input ends. What it
 * holds it fills with a pattern of its own, and looks at before it frees it. */
#include <cuda.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { HELD = 8, ROUNDS_BETWEEN_LOOKS = 256 };

static struct {
    CUdeviceptr pointer;
    size_t bytes;
} held[HELD];

static int intact(int i, unsigned char pattern)
{
    unsigned char ends[2] = {0};
    size_t last = held[i].bytes - 1;
    return !cuMemcpyDtoH(&ends[0], held[i].pointer, 1) &&
           !cuMemcpyDtoH(&ends[1], held[i].pointer + last, 1) && ends[0] == pattern &&
           ends[1] == pattern;
}

static int let_go(int i, unsigned char pattern)
{
    int good = !held[i].bytes || (intact(i, pattern) && !cuMemFree(held[i].pointer));
    held[i].bytes = 0;
    return good;
}

/* 0 and 2, out of memory, are what may come of it. */
static int take(int i, size_t bytes, unsigned char pattern)
{
    CUresult result = cuMemAlloc(&held[i].pointer, bytes);
    if (result)
        return result == CUDA_ERROR_OUT_OF_MEMORY;
    held[i].bytes = bytes;
    return !cuMemsetD8(held[i].pointer, pattern, 1) &&
           !cuMemsetD8(held[i].pointer + bytes - 1, pattern, 1);
}

static int told_to_end(void)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) != 0;
}

int main(int count, char **arguments)
{
    size_t most = (size_t)atoll(count > 1 ? arguments[1] : "64") << 20;
    unsigned char pattern = (unsigned char)getpid();
    CUcontext context;
    CUresult result = cuInit(0);
    if (!result)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (result)
        return result == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
    cuCtxSetCurrent(context);
    srandom((unsigned)getpid());
    for (unsigned round = 0; round % ROUNDS_BETWEEN_LOOKS || !told_to_end(); round++) {
        int i = (int)(random() % HELD);
        if (!let_go(i, pattern) || !take(i, 1 + (size_t)random() % most, pattern))
            return fprintf(stderr, "round %u failed\n", round), 1;
    }
    for (int i = 0; i < HELD; i++)
        if (!let_go(i, pattern))
            return fprintf(stderr, "the end failed\n"), 1;
    puts("freed all");
    fflush(stdout);
    pause(); /* so that the accounts can be compared */
}
