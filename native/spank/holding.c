/* What a tenant has, read from its files; they are root's, and checked all the same. */
#define _GNU_SOURCE
#include "spank.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tenant_path(const struct tenant *tenant, const char *name, char path[PATH_BYTES])
{
    path_join(path, "%s/tenants/" TENANT_NAME "%s%s", tenant->root, tenant->job, *name ? "/" : "", name);
}

bool tenant_exists(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    tenant_path(tenant, "", path);
    return !access(path, F_OK);
}

static bool read_link(const struct tenant *tenant, unsigned card, char uuid[41])
{
    char name[24], path[PATH_BYTES], target[PATH_BYTES];
    snprintf(name, sizeof name, "seats-%u", card);
    tenant_path(tenant, name, path);
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    target[bytes < 0 ? 0 : bytes] = '\0';
    const char *last = strrchr(target, '/');
    if (!last || strlen(last) != 41)
        return false;
    strcpy(uuid, last + 1);
    return true;
}

bool tenant_read(const struct tenant *tenant, struct holding *holding, struct problem *problem)
{
    struct partage_limits *limits = &holding->limits;
    char path[PATH_BYTES];
    tenant_path(tenant, TENANT_IN_FULL, path);
    holding->in_full = !access(path, F_OK);
    tenant_path(tenant, "limits", path);
    bool good = file_read(path, limits, sizeof *limits) && limits->magic == PARTAGE_LIMITS_MAGIC &&
                limits->version == PARTAGE_VERSION && limits->cards && limits->cards <= PARTAGE_CARDS;
    for (unsigned card = 0; good && card < limits->cards; card++)
        good = limits->card[card].seat < PARTAGE_SEATS && read_link(tenant, card, holding->uuid[card]);
    return good || refuse(problem, "%s is damaged; end the job and start it again", path);
}

int holding_find(const struct holding *holding, const char *uuid)
{
    for (unsigned card = 0; card < holding->limits.cards; card++)
        if (!strcmp(holding->uuid[card], uuid))
            return (int)card;
    return -1;
}
