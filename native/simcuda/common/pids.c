/*
 * Processes by their ids: each pid namespace has its own, and NVML tells those of whoever asks.
 *
 * A real driver asks the kernel. Here a process is recognised in /proc by its innermost id and the
 * moment it started; and by its namespace, where the kernel tells that (it takes the right to trace
 * the process).
 */
#include "common/pids.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STARTED_FIELD 22 /* of /proc/PID/stat; see proc(5) */

/* 0: the kernel does not tell. */
static uint64_t namespace_of(const char *process)
{
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%s/ns/pid", process);
    return stat(path, &status) ? 0 : status.st_ino;
}

static bool read_text(const char *process, const char *name, char *text, size_t bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/%s", process, name);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, bytes - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    return length;
}

/* In ticks since the machine started; the name before it may have any characters. 0: it is gone. */
static uint64_t started_ticks(const char *process)
{
    char text[1024];
    char *field = read_text(process, "stat", text, sizeof text) ? strrchr(text, ')') : 0;
    for (int i = 2; field && i < STARTED_FIELD; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, 0, 10) : 0;
}

/* The last of its ids: the one in its own namespace. */
static pid_t innermost(const char *process)
{
    char text[4096];
    char *line = read_text(process, "status", text, sizeof text) ? strstr(text, "\nNSpid:") : 0;
    if (!line)
        return 0;
    line++;
    line[strcspn(line, "\n")] = 0;
    char *last = strrchr(line, '\t');
    return last ? (pid_t)strtol(last, 0, 10) : 0;
}

static bool is_slots(const struct slot *slot, const char *process)
{
    uint64_t namespace;
    return innermost(process) == slot->pid && started_ticks(process) == slot->started_ticks &&
           (!(namespace = namespace_of(process)) || namespace == slot->pid_namespace);
}

void pid_tell(struct slot *slot)
{
    slot->pid_namespace = namespace_of("self");
    slot->started_ticks = started_ticks("self");
    slot->pid = getpid();
}

static pid_t search(const struct slot *slot)
{
    pid_t found = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && !found && (entry = readdir(processes));)
        if (*entry->d_name >= '1' && *entry->d_name <= '9' && is_slots(slot, entry->d_name))
            found = (pid_t)strtol(entry->d_name, 0, 10);
    if (processes)
        closedir(processes);
    return found;
}

/* A search reads all of /proc, so where somebody was found before is looked at first. */
static pid_t found_again(const struct machine *machine, unsigned index)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pid_t last[SLOTS];
    const struct slot *slot = &machine->slots[index];
    char process[16];
    pthread_mutex_lock(&mutex);
    snprintf(process, sizeof process, "%d", last[index]);
    if (!last[index] || !is_slots(slot, process))
        last[index] = search(slot);
    pid_t found = last[index];
    pthread_mutex_unlock(&mutex);
    return found;
}

pid_t pid_seen(const struct machine *machine, unsigned index)
{
    const struct slot *slot = &machine->slots[index];
    bool beside = slot->pid_namespace == namespace_of("self");
    return beside ? slot->pid : found_again(machine, index);
}
