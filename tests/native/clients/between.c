/* Stops a process at one instruction after another of an allocation, wherever it is in the fence, and
 * has a neighbour ask for as much meanwhile: there is room for one of them. Prints how often.
 *
 *   between LAST MIB          LAST, stopped or neighbour, is who took something before each round,
 *                             and so remembers what the other has
 *   between is-stopped MIB FD the one who is stopped; tells its result in the page that FD shares
 *   between is-neighbour MIB  for each byte that comes in, does what it says and answers with a byte
 */
#define _GNU_SOURCE
#include "partner.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

enum { SMALL_BYTES = 2 << 20 };

static CUdeviceptr held;

static char take(size_t bytes) { return (char)cuMemAlloc(&held, bytes); }

static char give(void) { return (char)cuMemFree(held); }

static char take_and_give(size_t bytes)
{
    char result = take(bytes);
    return result ? result : give();
}

static char *shared_page(int file)
{
    char *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return page == MAP_FAILED ? exit(1), NULL : page;
}

static _Noreturn void stopped(size_t bytes, int file)
{
    char *told = shared_page(file);
    begin();
    for (;;) {
        take_and_give(SMALL_BYTES);
        raise(SIGSTOP);
        *told = take(bytes);
        raise(SIGSTOP);
        if (!*told)
            give();
    }
}

static int neighbour(size_t bytes)
{
    char order;
    begin();
    take_and_give(bytes + bytes / 2); /* so that no later sum is a new peak */
    while (read(0, &order, 1) == 1) {
        char result = order == 't' ? take(bytes) : order == 'g' ? give() : take_and_give(SMALL_BYTES);
        if (write(1, &result, 1) != 1)
            return 1;
    }
    return 0;
}

/* The signal that it stopped with. */
static int next_stop(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        exit(1);
    return WSTOPSIG(status);
}

static void go_on(pid_t child)
{
    if (ptrace(PTRACE_CONT, child, 0, 0) || next_stop(child) != SIGSTOP)
        exit(1);
}

static pid_t start_stopped(const char *mib, int file)
{
    char number[16];
    snprintf(number, sizeof number, "%d", file);
    pid_t child = fork();
    if (!child) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execl("/proc/self/exe", "between", "is-stopped", mib, number, NULL);
        exit(1);
    }
    if (next_stop(child) != SIGTRAP)
        exit(3); /* may not be traced here */
    go_on(child);
    return child;
}

static struct {
    unsigned long begin, end;
} fence;

static void find_fence(pid_t child)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)child);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "libpartage.so") && strstr(line, " r-xp "))
            sscanf(line, "%lx-%lx", &fence.begin, &fence.end);
    if (!maps || fclose(maps) || !fence.end)
        exit(1);
}

static int is_in_fence(pid_t child)
{
    struct user_regs_struct registers;
    struct iovec whole = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, child, (void *)1 /* NT_PRSTATUS */, &whole))
        exit(1);
#ifdef __x86_64__
    unsigned long at = registers.rip;
#else
    unsigned long at = registers.pc;
#endif
    return fence.begin <= at && at < fence.end;
}

/* So many instructions on, and further to the next one of the fence; how many, or -1: none came. */
static long step(pid_t child, long least)
{
    for (long steps = 1;; steps++) {
        if (ptrace(PTRACE_SINGLESTEP, child, 0, 0))
            exit(1);
        if (next_stop(child) == SIGSTOP)
            return -1;
        if (steps >= least && is_in_fence(child))
            return steps;
    }
}

static int race(int neighbour_last, char *mib)
{
    int file = memfd_create("told", 0);
    if (file < 0 || ftruncate(file, 1))
        return 1;
    char *told = shared_page(file);
    start_partner("is-neighbour", mib);
    partner_does('s');
    pid_t child = start_stopped(mib, file);
    find_fence(child);
    long rounds = 0, steps = 0;
    for (;; rounds++) {
        if (neighbour_last)
            partner_does('s');
        if ((steps = step(child, steps + 1)) < 0)
            break;
        int neighbours = partner_does('t');
        go_on(child);
        if (!*told == !neighbours) {
            printf("%d and %d after %ld steps\n", *told, neighbours, steps);
            break;
        }
        if (!neighbours)
            partner_does('g');
        go_on(child);
    }
    kill(child, SIGKILL);
    close(orders[1]);
    while (wait(NULL) > 0)
        ;
    if (steps < 0)
        printf("%ld\n", rounds);
    return 0;
}

int main(int count, char **arguments)
{
    size_t bytes = count > 2 ? (size_t)atoll(arguments[2]) << 20 : 0;
    if (count > 3 && !strcmp(arguments[1], "is-stopped"))
        stopped(bytes, atoi(arguments[3]));
    if (count > 2 && !strcmp(arguments[1], "is-neighbour"))
        return neighbour(bytes);
    return count > 2 ? race(!strcmp(arguments[1], "neighbour"), arguments[2]) : 2;
}
