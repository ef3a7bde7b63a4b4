/* One thread asks for more than fits, again and again, while another takes and frees what always
 * fits: `greedy TOO_MANY_MIB FITTING_MIB ROUNDS`. Prints how often the second was refused. */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static CUcontext context;
static size_t too_many;
static bool done;

static void *ask(void *unused)
{
    CUdeviceptr pointer;
    (void)unused;
    cuCtxSetCurrent(context);
    while (!__atomic_load_n(&done, __ATOMIC_RELAXED))
        if (!cuMemAlloc(&pointer, too_many))
            exit(1);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t other;
    CUdeviceptr pointer;
    long refused = 0;
    if (count < 4 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    too_many = (size_t)atol(arguments[1]) << 20;
    if (pthread_create(&other, NULL, ask, NULL))
        return 1;
    for (long round = atol(arguments[3]); round; round--)
        if (cuMemAlloc(&pointer, (size_t)atol(arguments[2]) << 20))
            refused++;
        else
            cuMemFree(pointer);
    __atomic_store_n(&done, true, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
    printf("%ld\n", refused);
    return 0;
}
