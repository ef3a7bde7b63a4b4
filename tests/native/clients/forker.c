/* Forks while another thread looks the driver up for the first time; the child does so, too.
 *
 * Each round has a process of its own, since there is only one first time. Prints how many rounds
 * there were, and in how many the child crashed; one that hangs or finds nothing ends the program
 * with 1. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 20, LONGEST_DELAY = 20000, CRASHED = 2 };

static void *driver;
static int about_to;

static void *look_up(void *unused)
{
    (void)unused;
    __atomic_store_n(&about_to, 1, __ATOMIC_RELEASE);
    return dlsym(driver, "cuMemAlloc_v2");
}

static int code_of(pid_t child, int after_a_crash)
{
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return WTERMSIG(status) == SIGSEGV ? after_a_crash : 1;
}

static int round_with(int delay)
{
    pthread_t thread;
    pthread_create(&thread, NULL, look_up, NULL);
    while (!__atomic_load_n(&about_to, __ATOMIC_ACQUIRE))
        ;
    for (volatile int i = 0; i < delay; i++)
        ;
    pid_t child = fork();
    if (!child) {
        alarm(PATIENCE_S);
        _exit(!dlsym(driver, "cuMemFree_v2"));
    }
    int code = code_of(child, CRASHED);
    pthread_join(thread, NULL);
    return code;
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 1, crashed = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < rounds; i++) {
        pid_t one = fork();
        if (!one)
            _exit(round_with(i * 977 % LONGEST_DELAY));
        int code = code_of(one, 1);
        if (code && code != CRASHED)
            return 1;
        crashed += code == CRASHED;
    }
    printf("%d %d\n", rounds, crashed);
    return 0;
}
