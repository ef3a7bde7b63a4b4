/* A task may not make a namespace of users, nor enter another namespace: there it could mount over the
 * fence's files, or be where they are not. The kernel holds this (seccomp) for all that the task starts.
 * System calls of 32-bit programs, which would need another fence than there is, are refused as well. */
#define _GNU_SOURCE
#include "spank.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the fence is for x86_64 and aarch64"
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#define OTHER_CALLS 0x40000000u /* x86-64's calls with short pointers begin here */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define IF_EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)

#define RULES(of) ((struct sock_fprog){.len = sizeof of / sizeof *of, .filter = of})

static struct sock_filter rules[] = {
    LOAD(arch),
    IF_EQUAL(OWN_ARCHITECTURE, 1, 0),
    ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
    LOAD(nr),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, OTHER_CALLS, 5, 0),
    IF_EQUAL(SYS_clone3, 4, 0), /* its flags are out of sight; C libraries then call clone */
    IF_EQUAL(SYS_setns, 7, 0),
    IF_EQUAL(SYS_unshare, 3, 0),
    IF_EQUAL(SYS_clone, 2, 0),
    ANSWER(SECCOMP_RET_ALLOW),
    ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
    LOAD(args[0]), /* the lower half: all flags are there */
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 1, 0),
    ANSWER(SECCOMP_RET_ALLOW),
    ANSWER(SECCOMP_RET_ERRNO | EPERM),
};

static struct sock_filter no_programs[] = {
    LOAD(nr),
    IF_EQUAL(SYS_execve, 1, 0),
    IF_EQUAL(SYS_execveat, 0, 1),
    ANSWER(SECCOMP_RET_ERRNO | EPERM),
    ANSWER(SECCOMP_RET_ALLOW),
};

static bool begin(struct sock_fprog program, struct problem *problem)
{
    if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0))
        return true;
    return refuse(problem, "the kernel does not confine the task (%s); it needs seccomp", strerror(errno));
}

bool confinement_begin(struct problem *problem) { return begin(RULES(rules), problem); }

bool confinement_total(struct problem *problem) { return begin(RULES(no_programs), problem); }
