#define _GNU_SOURCE
#include "environment.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *mapped(size_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

char **environment_with(char *variable)
{
    size_t name_bytes = (size_t)(strchr(variable, '=') - variable) + 1, count = 0, kept = 0;
    while (environ && environ[count])
        count++;
    char **list = mapped((count + 2) * sizeof *list);
    for (size_t i = 0; list && i < count; i++)
        if (strncmp(environ[i], variable, name_bytes))
            list[kept++] = environ[i];
    if (list)
        list[kept] = variable;
    return list;
}

void environment_set(const char *name, const char *value)
{
    size_t bytes = strlen(name) + strlen(value) + 2;
    char *variable = mapped(bytes);
    if (!variable)
        return;
    snprintf(variable, bytes, "%s=%s", name, value);
    char **list = environment_with(variable);
    if (list)
        environ = list;
}
