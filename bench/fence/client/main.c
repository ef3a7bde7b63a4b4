/* The commands, and what they have in common. Everything is told on stdout in lines of JSON. */
#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char SPIN[] = ".version 8.0\n"
                           ".target sm_80\n"
                           ".address_size 64\n"
                           ".visible .entry spin()\n"
                           "{\n"
                           "ret;\n"
                           "}\n";

static void end(const char *what, const char *why)
{
    fprintf(stderr, "client: %s: %s\n", what, why);
    exit(1);
}

void check(CUresult result, const char *call)
{
    const char *text = 0;
    if (!result)
        return;
    cuGetErrorString(result, &text);
    end(call, text ? text : "refused");
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

CUfunction open_card(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction spin;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, SPIN));
    CHECK(cuModuleGetFunction(&spin, module, "spin"));
    return spin;
}

int ready_for_turn(void)
{
    char line[16];
    puts("\"ready\"");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != 0;
}

uint64_t number(const char *text)
{
    char *rest;
    errno = 0;
    uint64_t value = text ? strtoull(text, &rest, 10) : 0;
    if (!text || *rest || errno)
        end(text ? text : "an argument", "is missing or no number");
    return value;
}

static void pin(const char *core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(number(core), &set);
    if (sched_setaffinity(0, sizeof set, &set))
        end("cannot be pinned to core", core);
}

/* A process that is there and has something. */
static int hold(char **arguments)
{
    CUdeviceptr held;
    (void)arguments;
    open_card();
    CHECK(cuMemAlloc(&held, 1 << 20));
    return !!ready_for_turn();
}

static const struct {
    const char *name;
    int (*run)(char **arguments);
} COMMANDS[] = {
    {"calls", time_calls},
    {"hold", hold},
    {"busy", keep_busy},
    {"start", start_programs},
    {"watch", watch_machine},
};

/* client CORE COMMAND ARGUMENTS...; "-" as a core: wherever the kernel puts it. */
int main(int count, char **arguments)
{
    if (count < 3)
        end("usage", "client CORE calls|hold|busy|start|watch ARGUMENTS...");
    if (strcmp(arguments[1], "-"))
        pin(arguments[1]);
    for (size_t i = 0; i < sizeof COMMANDS / sizeof *COMMANDS; i++)
        if (!strcmp(COMMANDS[i].name, arguments[2]))
            return COMMANDS[i].run(arguments + 3);
    end(arguments[2], "is no command");
    return 1;
}
