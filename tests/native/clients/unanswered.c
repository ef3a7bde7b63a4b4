/* Starts a program whose system calls of some numbers are not answered, as by an older kernel:
 * `unanswered 21,439 program argument...`. Anybody may do that to their own programs. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { MOST = 16 };

/* If it is this one, the next statement is run; else it is skipped. */
static struct sock_filter only(unsigned number)
{
    return (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
}

static int refuse(char *numbers)
{
    struct sock_filter program[2 * MOST + 2];
    unsigned short length = 0;
    program[length++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (char *at = numbers; *at && length < 2 * MOST; at += *at == ',') {
        program[length++] = only((unsigned)strtoul(at, &at, 10));
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {.len = length, .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int count, char **arguments)
{
    if (count < 3 || refuse(arguments[1]))
        return perror("unanswered"), 2;
    execvp(arguments[2], arguments + 2);
    return perror(arguments[2]), 2;
}
