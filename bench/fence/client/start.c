/* How long a program takes from its start to its end: `start COUNT PROGRAM [LIBRARY]...`.
 *
 * In turns, without a preloaded library and with each of those named. */
#define _GNU_SOURCE
#include "client.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { LIBRARIES_MAX = 8, SETTING_BYTES = 4096 };

static uint64_t start_once(char *program, char *setting)
{
    char *arguments[] = {program, 0}, *environment[] = {setting, 0};
    pid_t child;
    int status;
    uint64_t began = now_ns();
    if (posix_spawn(&child, program, 0, 0, arguments, environment) ||
        waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "client: %s with %s does not run\n", program, setting ? setting : "nothing");
        exit(1);
    }
    return now_ns() - began;
}

int start_programs(char **arguments)
{
    static char settings[LIBRARIES_MAX][SETTING_BYTES];
    uint64_t count = number(arguments[0]);
    size_t libraries = 0;
    for (; arguments[2 + libraries] && libraries < LIBRARIES_MAX; libraries++)
        snprintf(settings[libraries], SETTING_BYTES, "LD_PRELOAD=%s", arguments[2 + libraries]);
    for (uint64_t i = 0; i < count; i++) {
        printf("[%llu", (unsigned long long)start_once(arguments[1], 0));
        for (size_t j = 0; j < libraries; j++)
            printf(", %llu", (unsigned long long)start_once(arguments[1], settings[j]));
        puts("]");
    }
    return 0;
}
