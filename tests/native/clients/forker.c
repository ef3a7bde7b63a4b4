/* Forks while another thread looks the driver up for the first time; the child does so, too.
 *
 * Each round has a process of its own, since there is only one first time. Prints how many rounds
 * there were; a child that hangs ends the program with 1. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 20, LONGEST_DELAY = 20000 };

static void *driver;
static int about_to;

static void *look_up(void *unused)
{
    (void)unused;
    __atomic_store_n(&about_to, 1, __ATOMIC_RELEASE);
    return dlsym(driver, "cuMemAlloc_v2");
}

static int code_of(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
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
    int code = code_of(child);
    pthread_join(thread, NULL);
    return code;
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 1;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (int i = 0; i < rounds; i++) {
        pid_t one = fork();
        if (!one)
            _exit(round_with(i * 977 % LONGEST_DELAY));
        if (code_of(one))
            return 1;
    }
    printf("%d\n", rounds);
    return 0;
}
