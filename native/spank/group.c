/* What a step has within its job: a group of the tenant's processes, whose files the fence finds beside
 * the tenant's own. They are made before the step's first task, and removed when the step is over. */
#define _GNU_SOURCE
#include "spank.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "group-"

void group_path(const struct tenant *tenant, const char *kind, char path[PATH_BYTES])
{
    char name[64];
    snprintf(name, sizeof name, PREFIX "%" PRIu32 ".%s", tenant->group, kind);
    tenant_path(tenant, name, path);
}

/* Of several cards Slurm tells only which: then it is what the job has of each. */
static struct partage_group_limits_card card_limits(const struct partage_limits_card *job,
                                                    const struct fraction *fraction, enum compute compute)
{
    struct partage_group_limits_card card = {.memory_bytes = job->memory_bytes};
    if (!fraction->part)
        return card;
    struct partage_limits_card own = fraction_limits(fraction, compute);
    card.memory_bytes = own.memory_bytes;
    card.share = job->mode == PARTAGE_MODE_FIXED && own.share < job->share ? own.share : 0;
    return card;
}

/* A step that has no part of its own shares what the job has. */
static void fill(struct partage_group_limits *limits, const struct holding *holding,
                 const struct allocation *step, enum compute compute)
{
    for (unsigned card = 0; !step && card < holding->limits.cards; card++)
        limits->card[card].memory_bytes = holding->limits.card[card].memory_bytes;
    for (unsigned i = 0; step && i < step->cards; i++) {
        int card = holding_find(holding, step->fraction[i].card->uuid);
        if (card >= 0)
            limits->card[card] = card_limits(&holding->limits.card[card], &step->fraction[i], compute);
    }
}

static bool put(const struct tenant *tenant, const char *scratch, const char *kind, const void *content,
                size_t bytes, mode_t mode, uid_t uid, gid_t gid)
{
    char unfinished[PATH_BYTES], path[PATH_BYTES];
    group_path(tenant, kind, path);
    return path_join(unfinished, "%s/%s", scratch, kind) &&
           file_write(unfinished, content, bytes, mode, uid, gid) && !rename(unfinished, path);
}

bool group_exists(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    group_path(tenant, "limits", path);
    return !access(path, F_OK);
}

/* The limits come last: where they are, the step is complete. */
bool group_make(const struct tenant *tenant, const struct holding *holding, const char *scratch,
                const struct allocation *step, enum compute compute)
{
    if (group_exists(tenant))
        return true;
    struct partage_group_limits limits = {.magic = PARTAGE_GROUP_LIMITS_MAGIC,
                                          .version = PARTAGE_VERSION,
                                          .size = sizeof limits,
                                          .number = tenant->group};
    struct partage_group_region region = {
        .magic = PARTAGE_GROUP_REGION_MAGIC, .version = PARTAGE_VERSION, .size = sizeof region};
    fill(&limits, holding, step, compute);
    return put(tenant, scratch, "region", &region, sizeof region, 0600, tenant->uid, tenant->gid) &&
           put(tenant, scratch, "limits", &limits, sizeof limits, 0644, 0, 0);
}

bool group_read(const struct tenant *tenant, struct partage_group_limits *limits, struct problem *problem)
{
    char path[PATH_BYTES];
    group_path(tenant, "limits", path);
    return file_read(path, limits, sizeof *limits) ||
           refuse(problem, "%s cannot be read; start the step again", path);
}

void group_remove(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    group_path(tenant, "limits", path);
    unlink(path);
    group_path(tenant, "region", path);
    unlink(path);
}

static bool is_another(const struct tenant *tenant, const char *name)
{
    uint32_t number;
    int end = 0;
    return sscanf(name, PREFIX "%" SCNu32 ".limits%n", &number, &end) == 1 && end && !name[end] &&
           number != tenant->group;
}

uint64_t groups_bytes(const struct tenant *tenant, int card)
{
    struct partage_group_limits limits;
    char folder[PATH_BYTES], path[PATH_BYTES];
    uint64_t sum = 0;
    tenant_path(tenant, "", folder);
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));)
        if (is_another(tenant, entry->d_name) && path_join(path, "%s/%s", folder, entry->d_name) &&
            file_read(path, &limits, sizeof limits))
            sum += limits.card[card].memory_bytes;
    if (files)
        closedir(files);
    return sum;
}
