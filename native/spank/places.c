/* A view of the file system for this task alone, in which the fence's files are where the fence looks
 * for them, as in a container. Root made it and the user cannot leave it or change it. */
#define _GNU_SOURCE
#include "spank.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#define AROUND "/etc/partage"
#define FENCE AROUND "/fence"
#define PRELOAD "/etc/ld.so.preload"

static bool bind(const char *source, const char *target, struct problem *problem)
{
    if (!mount(source, target, NULL, MS_BIND, NULL))
        return true;
    return refuse(problem, "%s cannot be mounted at %s (%s); run `partage slurm prepare` on the node as root",
                  source, target, strerror(errno));
}

/* Its own seats lie in the folders of all seats, which it reads. */
static bool bind_seats(const struct tenant *tenant, const struct holding *holding, struct problem *problem)
{
    char folder[PATH_BYTES], target[PATH_BYTES];
    for (unsigned card = 0; card < holding->limits.cards; card++)
        if (!path_join(folder, "%s/seats/%s", tenant->root, holding->uuid[card]) ||
            !path_join(target, FENCE "/seats-%u", card) || !bind(folder, target, problem))
            return false;
    return true;
}

static bool bind_tenant(const struct tenant *tenant, const struct holding *holding, struct problem *problem)
{
    char limits[PATH_BYTES], region[PATH_BYTES], group_limits[PATH_BYTES], group_region[PATH_BYTES];
    tenant_path(tenant, "limits", limits);
    tenant_path(tenant, "region", region);
    group_path(tenant, "limits", group_limits);
    group_path(tenant, "region", group_region);
    return bind(limits, FENCE "/limits", problem) && bind(region, FENCE "/region", problem) &&
           bind(group_limits, FENCE "/group-limits", problem) &&
           bind(group_region, FENCE "/group-region", problem) && bind_seats(tenant, holding, problem);
}

/* The driver's own file is first put behind ours, where ours looks for it. */
static bool bind_driver(const struct table *table, struct problem *problem)
{
    char behind[PATH_BYTES];
    for (unsigned i = 0; i < table->places; i++) {
        const struct table_place *place = &table->place[i];
        if (!path_join(behind, FENCE "/%s", place->behind) || !bind(place->target, behind, problem) ||
            !bind(place->ours, place->target, problem))
            return false;
    }
    return true;
}

bool places_enter(const struct tenant *tenant, const struct holding *holding, const struct table *table,
                  struct problem *problem)
{
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
        return refuse(problem, "the task cannot get a view of the file system of its own (%s)",
                      strerror(errno));
    return bind(table->around, AROUND, problem) &&
           bind(table->library, FENCE "/libpartage.so", problem) && bind_tenant(tenant, holding, problem) &&
           bind_driver(table, problem) && bind(table->preload, PRELOAD, problem);
}
