/* Seats at a card, handed out as src/partage/fence/store/seats.py does it: under the root's lock, the
 * lowest number that no tenant has, with a fresh file. Who has which seat is in the limits. */
#define _GNU_SOURCE
#include "spank.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The tenant's link number `index` leads to the seats of this card. */
static bool is_linked(const char *tenant, unsigned index, const char *uuid, bool *same)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    if (!path_join(path, "%s/seats-%u", tenant, index))
        return false;
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    if (bytes < 0)
        return false;
    target[bytes] = '\0';
    const char *name = strrchr(target, '/');
    *same = !strcmp(name ? name + 1 : target, uuid);
    return true;
}

/* What a tenant has of a card. */
struct stake {
    bool known; /* its limits can be read */
    uint32_t seat;
    uint64_t memory_bytes;
};

static bool find_stake(const char *tenant, const char *uuid, struct stake *stake)
{
    struct partage_limits limits;
    char path[PATH_BYTES];
    bool same = false;
    unsigned i = 0;
    while (i < PARTAGE_CARDS && is_linked(tenant, i, uuid, &same) && !same)
        i++;
    if (!same)
        return false;
    *stake = (struct stake){0};
    stake->known = path_join(path, "%s/limits", tenant) && file_read(path, &limits, sizeof limits) &&
                   limits.magic == PARTAGE_LIMITS_MAGIC && limits.version == PARTAGE_VERSION;
    if (stake->known)
        stake->seat = limits.card[i].seat, stake->memory_bytes = limits.card[i].memory_bytes;
    return true;
}

/* All tenants that have a part of a card, but one. */
static bool visit_stakes(const char *root, const char *but, const char *uuid,
                         void visit(void *context, const struct stake *stake), void *context)
{
    struct stake stake;
    char path[PATH_BYTES];
    if (!path_join(path, "%s/tenants", root))
        return false;
    DIR *tenants = opendir(path);
    if (!tenants)
        return false;
    for (struct dirent *entry; (entry = readdir(tenants));)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, but) &&
            path_join(path, "%s/tenants/%s", root, entry->d_name) && find_stake(path, uuid, &stake))
            visit(context, &stake);
    closedir(tenants);
    return true;
}

static void add_memory(void *sum, const struct stake *stake) { *(uint64_t *)sum += stake->memory_bytes; }

bool seats_memory(const struct tenant *tenant, const char *uuid, uint64_t *memory_bytes)
{
    char own[32];
    *memory_bytes = 0;
    snprintf(own, sizeof own, TENANT_NAME, tenant->job);
    return visit_stakes(tenant->root, own, uuid, add_memory, memory_bytes);
}

struct seats {
    const char *folder;
    bool taken[PARTAGE_SEATS];
};

static void mark_made(struct seats *seats)
{
    DIR *made = opendir(seats->folder);
    for (struct dirent *entry; made && (entry = readdir(made));) {
        char *end;
        unsigned long seat = strtoul(entry->d_name, &end, 10);
        if (end != entry->d_name && !*end && seat < PARTAGE_SEATS)
            seats->taken[seat] = true;
    }
    if (made)
        closedir(made);
}

/* Of a tenant whose limits cannot be read, the seat is one of those that are made. */
static void mark(void *context, const struct stake *stake)
{
    struct seats *seats = context;
    if (!stake->known)
        mark_made(seats);
    else if (stake->seat < PARTAGE_SEATS)
        seats->taken[stake->seat] = true;
}

/* With its final mode from the start, as others may look meanwhile. */
static bool make_folder(const char *root, const char *uuid, const char *folder)
{
    char unfinished[PATH_BYTES];
    if (!access(folder, F_OK))
        return true;
    if (!path_join(unfinished, "%s/seats/.%s", root, uuid))
        return false;
    folder_clear(unfinished);
    return folder_make(unfinished, 0755) && !rename(unfinished, folder);
}

static bool make_seat(const struct tenant *tenant, const char *folder, unsigned number, const uint8_t raw[16])
{
    char scratch[PATH_BYTES], path[PATH_BYTES];
    struct partage_seat seat = {
        .magic = PARTAGE_SEAT_MAGIC, .version = PARTAGE_VERSION, .size = sizeof seat};
    memcpy(seat.uuid, raw, sizeof seat.uuid);
    return path_join(scratch, "%s/scratch-0/seat", tenant->root) &&
           path_join(path, "%s/%u", folder, number) &&
           file_write(scratch, &seat, sizeof seat, 0644, tenant->uid, tenant->gid) &&
           !rename(scratch, path);
}

bool seat_take(const struct tenant *tenant, const char *uuid, const uint8_t raw_uuid[16], uint32_t *seat,
               struct problem *problem)
{
    char folder[PATH_BYTES];
    struct seats seats = {.folder = folder};
    if (!path_join(folder, "%s/seats/%s", tenant->root, uuid) ||
        !make_folder(tenant->root, uuid, folder) ||
        !visit_stakes(tenant->root, "", uuid, mark, &seats))
        return not_written(tenant, problem);
    for (*seat = 0; *seat < PARTAGE_SEATS && seats.taken[*seat]; ++*seat)
        ;
    if (*seat == PARTAGE_SEATS)
        return refuse(problem, "card %s has %u tenants already, and no place for another; wait until a job "
                               "on it has ended", uuid, PARTAGE_SEATS);
    if (!make_seat(tenant, folder, *seat, raw_uuid))
        return not_written(tenant, problem);
    return true;
}
