/* Limits of device memory for the processes of a cgroup; a limit also holds for cgroups inside. */
#include "common/cgroups.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t cgroup_of_path(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    uint64_t cgroup = fstat(fd, &status) ? 0 : status.st_ino;
    close(fd);
    return cgroup;
}

/* Where cgroups of version 2 are mounted: alone, or beside those of version 1. */
static const char *mount(void)
{
    return access("/sys/fs/cgroup/cgroup.procs", F_OK) ? "/sys/fs/cgroup/unified"
                                                       : "/sys/fs/cgroup";
}

/* The line "0::/path" of /proc/self/cgroup is the one of version 2. */
static bool read_path(char *path, size_t bytes)
{
    char line[1024];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        found = !strncmp(line, "0::/", 4);
    }
    if (file)
        fclose(file);
    return found && snprintf(path, bytes, "%s%s", mount(), line + 3) < (int)bytes;
}

void cgroups_of_process(uint64_t cgroups[CGROUP_DEPTH])
{
    char path[2048];
    size_t shortest = strlen(mount());
    memset(cgroups, 0, CGROUP_DEPTH * sizeof cgroups[0]);
    if (!read_path(path, sizeof path))
        return;
    for (unsigned i = 0; i < CGROUP_DEPTH && strlen(path) >= shortest; i++) {
        cgroups[i] = cgroup_of_path(path);
        *strrchr(path, '/') = 0;
    }
}

bool slot_in_cgroup(const struct slot *slot, uint64_t cgroup)
{
    for (unsigned i = 0; i < CGROUP_DEPTH; i++)
        if (slot->cgroups[i] == cgroup)
            return true;
    return false;
}

uint64_t cgroup_used(const struct attachment *here, const struct card *card, uint64_t cgroup)
{
    uint64_t used_bytes = 0;
    for (unsigned i = 0; i < here->machine->slots_used; i++)
        if (card->shares[i].used_bytes && slot_in_cgroup(&here->machine->slots[i], cgroup))
            used_bytes += card->shares[i].used_bytes;
    return used_bytes;
}

bool limits_allow(const struct attachment *here, const struct card *card, uint64_t bytes)
{
    const struct slot *own = &here->machine->slots[here->slot];
    for (unsigned i = 0; i < card->limits_used; i++) {
        const struct limit *limit = &card->limits[i];
        if (!limit->cgroup || !slot_in_cgroup(own, limit->cgroup))
            continue;
        uint64_t used_bytes = cgroup_used(here, card, limit->cgroup);
        if (bytes > limit->hard_bytes || used_bytes > limit->hard_bytes - bytes)
            return false;
    }
    return true;
}
