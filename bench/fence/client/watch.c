/* Somebody who looks on: `watch MILLISECONDS`.
 *
 * One thread on each core sleeps a millisecond at a time and adds up by how much too late it wakes,
 * beyond what timers are late anyway. A machine that is busy with other things, or that its host
 * keeps waiting, shows in it; so a measurement that was disturbed can be told from a bad one.
 *
 * At the end NVML is asked how busy each process kept the card in the last second: what it says has
 * to agree with what the clients say of themselves. */
#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <nvml.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { CORES_MAX = 256, PROCESSES_MAX = 64, NAP_NS = 1000000, USUAL_NS = 500000 };

struct watcher {
    pthread_t thread;
    int core;
    uint64_t until_ns, late_ns;
};

static void nap(uint64_t until_ns)
{
    struct timespec end = {(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0);
}

static void *watch_core(void *pointer)
{
    struct watcher *watcher = pointer;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(watcher->core, &set);
    sched_setaffinity(0, sizeof set, &set);
    for (uint64_t now = now_ns(); now < watcher->until_ns;) {
        uint64_t due = now + NAP_NS;
        nap(due);
        now = now_ns();
        if (now > due + USUAL_NS)
            watcher->late_ns += now - due;
    }
    return 0;
}

static int start_watchers(struct watcher *watchers, uint64_t until_ns)
{
    cpu_set_t allowed;
    int count = 0;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (int core = 0; core < CORES_MAX; core++)
        if (CPU_ISSET(core, &allowed)) {
            watchers[count] = (struct watcher){.core = core, .until_ns = until_ns};
            if (!pthread_create(&watchers[count].thread, 0, watch_core, &watchers[count]))
                count++;
        }
    return count;
}

/* The lateness of the core that was late the most. */
static uint64_t watch_cores(uint64_t until_ns)
{
    static struct watcher watchers[CORES_MAX];
    uint64_t most_ns = 0;
    int count = start_watchers(watchers, until_ns);
    for (int i = 0; i < count; i++) {
        pthread_join(watchers[i].thread, 0);
        if (watchers[i].late_ns > most_ns)
            most_ns = watchers[i].late_ns;
    }
    return most_ns;
}

static unsigned long long wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* Opened rather than linked, so that the other commands do not have it in their process. */
static unsigned ask_nvml(nvmlProcessUtilizationSample_t *samples)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    nvmlDevice_t card;
    unsigned count = PROCESSES_MAX;
    if (!library)
        return 0;
#define ASK(function, ...) ((__typeof__(&function))dlsym(library, #function))(__VA_ARGS__)
    if (ASK(nvmlInit_v2) || ASK(nvmlDeviceGetHandleByIndex_v2, 0, &card) ||
        ASK(nvmlDeviceGetProcessUtilization, card, samples, &count, wall_us() - 1000000))
        return 0;
    return count;
}

int watch_machine(char **arguments)
{
    static nvmlProcessUtilizationSample_t samples[PROCESSES_MAX];
    uint64_t length_ns = number(arguments[0]) * 1000000;
    if (!ready_for_turn())
        return 0;
    uint64_t late_ns = watch_cores(now_ns() + length_ns);
    unsigned count = ask_nvml(samples);
    printf("{\"late_percent\": %.3f, \"asked_ns\": %llu, \"busy_percent\": {",
           100.0 * (double)late_ns / (double)length_ns, (unsigned long long)now_ns());
    for (unsigned i = 0; i < count; i++)
        printf("%s\"%u\": %u", i ? ", " : "", samples[i].pid, samples[i].smUtil);
    puts("}}");
    return 0;
}
