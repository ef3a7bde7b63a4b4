/* Kills a process at one instruction after another of an allocation and a free, and has another
 * process of the tenant allocate all there is after each death. Prints how many deaths there were.
 *
 *   stepper WAY STRIDE MIB   the one who kills; a victim dies at every STRIDE-th instruction
 *   stepper victim WAY       allocates and frees once, between two stops: linear, pooled or physical
 *   stepper survivor MIB     for each byte that comes in, allocates so much and answers with a byte
 */
#define _GNU_SOURCE
#include "partner.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum { FIRST_BYTES = 2 << 20, VICTIM_BYTES = 64 << 20 };

static void linear(size_t bytes)
{
    CUdeviceptr pointer;
    cuMemAlloc(&pointer, bytes);
    cuMemFree(pointer);
}

static void pooled(size_t bytes)
{
    CUdeviceptr pointer;
    cuMemAllocAsync(&pointer, bytes, 0);
    cuMemFreeAsync(pointer, 0);
    cuStreamSynchronize(0);
}

static void physical(size_t bytes)
{
    CUmemAllocationProp on_card = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    cuMemCreate(&handle, bytes, &on_card, 0);
    cuMemAddressReserve(&at, bytes, 0, 0, 0);
    cuMemMap(at, bytes, 0, handle, 0);
    cuMemRelease(handle);
    cuMemUnmap(at, bytes);
    cuMemAddressFree(at, bytes);
}

static const struct {
    const char *name;
    void (*once)(size_t);
} WAYS[] = {{"linear", linear}, {"pooled", pooled}, {"physical", physical}};

static int victim(const char *way)
{
    int i = 0;
    while (strcmp(WAYS[i].name, way))
        i++;
    begin();
    WAYS[i].once(FIRST_BYTES); /* what is found at the first call is not found again */
    raise(SIGSTOP);
    WAYS[i].once(VICTIM_BYTES);
    raise(SIGSTOP);
    return 0;
}

static int survivor(size_t bytes)
{
    CUdeviceptr pointer;
    char order;
    begin();
    while (read(0, &order, 1) == 1) {
        char result = (char)cuMemAlloc(&pointer, bytes);
        if (!result)
            cuMemFree(pointer);
        if (write(1, &result, 1) != 1)
            return 1;
    }
    return 0;
}

static int stopped_by(pid_t child, int signal)
{
    int status;
    return waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}

static pid_t start_victim(const char *way)
{
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execl("/proc/self/exe", "stepper", "victim", way, NULL);
        exit(1);
    }
    if (!stopped_by(child, SIGTRAP) || ptrace(PTRACE_CONT, child, 0, 0) ||
        !stopped_by(child, SIGSTOP))
        exit(3); /* may not be traced here */
    return child;
}

/* False: its second stop came first. */
static int step(pid_t child, long steps)
{
    int status;
    for (; steps; steps--) {
        if (ptrace(PTRACE_SINGLESTEP, child, 0, 0) || waitpid(child, &status, 0) != child)
            exit(1);
        if (WSTOPSIG(status) == SIGSTOP)
            return 0;
    }
    return 1;
}

static int kill_all(const char *way, long stride, char *mib)
{
    int going = 1;
    long deaths = 0;
    start_partner("survivor", mib);
    for (long steps = 0; going; steps += stride, deaths++) {
        pid_t child = start_victim(way);
        going = step(child, steps);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (partner_does('?')) {
            printf("not well after %ld steps\n", steps);
            return 1;
        }
    }
    close(orders[1]); /* the survivor ends, and what it had is no longer counted */
    wait(NULL);
    printf("%ld\n", deaths);
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 2 && !strcmp(arguments[1], "victim"))
        return victim(arguments[2]);
    if (count > 2 && !strcmp(arguments[1], "survivor"))
        return survivor((size_t)atoll(arguments[2]) << 20);
    return count > 3 ? kill_all(arguments[1], atol(arguments[2]), arguments[3]) : 2;
}
