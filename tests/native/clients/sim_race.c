/*
 * Processes that ask for the same memory at the same instant, round after round: each time just so
 * many get it as there is room for. Arguments: processes, rounds, MiB that each wants, how many fit.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim_check.h"

static struct {
    atomic_int arrived, got, failed;
} *shared;

/* One who failed does not come any more: the others must not wait for him. */
static void give_up(void)
{
    atomic_store(&shared->failed, 1);
}

/* Nobody goes on before all have come; spinning, so that they go on together. */
static void meet(int all)
{
    int meeting = atomic_fetch_add(&shared->arrived, 1) / all;
    while (atomic_load(&shared->arrived) < (meeting + 1) * all) {
        if (atomic_load(&shared->failed))
            _exit(EXIT_FAILURE);
        sched_yield();
    }
}

static void compete(int all, int rounds, size_t bytes, int fitting)
{
    CUcontext context;
    CUdeviceptr pointer;
    CHECK(!atexit(give_up));
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    for (int i = 0; i < rounds; i++) {
        meet(all);
        CUresult result = cuMemAlloc(&pointer, bytes);
        CHECK(!result || result == CUDA_ERROR_OUT_OF_MEMORY);
        atomic_fetch_add(&shared->got, !result);
        meet(all);
        CHECK(atomic_load(&shared->got) == fitting * (i + 1));
        if (!result)
            OK(cuMemFree(pointer));
    }
}

int main(int count, char **arguments)
{
    CHECK(count == 5);
    int all = atoi(arguments[1]), failed = 0, status;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (int i = 0; i < all; i++)
        if (!fork()) {
            compete(all, atoi(arguments[2]), (size_t)atoi(arguments[3]) * MIB, atoi(arguments[4]));
            _exit(EXIT_SUCCESS);
        }
    while (wait(&status) > 0)
        failed |= status;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
