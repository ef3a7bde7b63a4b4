/* Starts a program, and changes the loader's question for its list of libraries to one for a file that
 * is not there: `traced program argument...`. Anybody may trace their own programs. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

#include <linux/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIST "/etc/ld.so.preload"
#define OTHER "/no/such"

/* Where the path of the question is, if it is one that the program asks now. */
static uintptr_t path_asked(pid_t program)
{
    struct ptrace_syscall_info call = {0};
    ptrace(PTRACE_GET_SYSCALL_INFO, program, sizeof call, &call);
    if (call.op != PTRACE_SYSCALL_INFO_ENTRY)
        return 0;
#ifdef SYS_access
    if (call.entry.nr == SYS_access)
        return call.entry.args[0];
#endif
    return call.entry.nr == SYS_faccessat ? call.entry.args[1] : 0;
}

static int changed(pid_t program)
{
    uintptr_t path = path_asked(program);
    long word = path ? ptrace(PTRACE_PEEKDATA, program, path, 0) : 0;
    if (!path || memcmp(&word, LIST, sizeof word))
        return 0;
    memcpy(&word, OTHER, sizeof word);
    return ptrace(PTRACE_POKEDATA, program, path, word) == 0;
}

static int trace(pid_t program, int ready)
{
    int status;
    long options = PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD;
    int seized = !ptrace(PTRACE_SEIZE, program, 0, options);
    if (write(ready, "", 1) != 1 || !seized)
        return perror("ptrace"), 2;
    while (waitpid(program, &status, __WALL) == program && WIFSTOPPED(status)) {
        if (changed(program))
            return (int)ptrace(PTRACE_DETACH, program, 0, 0);
        ptrace(PTRACE_SYSCALL, program, 0, 0);
    }
    return 1;
}

int main(int count, char **arguments)
{
    int pipes[2];
    char byte;
    pid_t program = getpid();
    if (count < 2 || pipe(pipes))
        return 2;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* a child may not, elsewhere */
    if (!fork())
        return trace(program, pipes[1]);
    if (read(pipes[0], &byte, 1) != 1)
        return 2;
    execvp(arguments[1], arguments + 1);
    return perror(arguments[1]), 2;
}
