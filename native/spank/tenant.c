/* The tenant of a job, made as src/partage/fence/store/tenants.py makes one: under the root's lock, in
 * a scratch folder, visible by one rename. All tasks and steps of a job on a node share one. */
#define _GNU_SOURCE
#include "spank.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void tenant_path(const struct tenant *tenant, const char *name, char path[PATH_BYTES])
{
    path_join(path, "%s/tenants/job-%u%s%s", tenant->root, tenant->job, *name ? "/" : "", name);
}

bool tenant_exists(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    tenant_path(tenant, "", path);
    return !access(path, F_OK);
}

static bool not_written(const struct tenant *tenant, struct problem *problem)
{
    int error = errno;
    return refuse(problem, "its limits cannot be written to %s (%s); %s", tenant->root, strerror(error),
                  error == ENOSPC ? "make room in that file system"
                                  : "run `partage slurm prepare` on the node as root");
}

static bool scratch_path(const struct tenant *tenant, const char *name, char path[PATH_BYTES])
{
    return path_join(path, "%s/scratch-0%s%s", tenant->root, *name ? "/" : "", name);
}

static void clear_scratch(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    if (scratch_path(tenant, "", path))
        folder_clear(path);
}

/* What is there when the lock is ours was left by a killed process. */
static int lock_root(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    int lock = path_join(path, "%s/lock", tenant->root)
                   ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
                   : -1;
    while (lock >= 0 && flock(lock, LOCK_EX))
        if (errno != EINTR)
            return close(lock), -1;
    if (lock >= 0)
        clear_scratch(tenant);
    return lock;
}

/* ---- a new one ------------------------------------------------------------------------------ */

static bool write_limits(const struct tenant *tenant, struct partage_limits_card card)
{
    char path[PATH_BYTES];
    struct partage_limits limits = {.magic = PARTAGE_LIMITS_MAGIC,
                                    .version = PARTAGE_VERSION,
                                    .size = sizeof limits,
                                    .cards = 1,
                                    .on_failure = PARTAGE_ON_FAILURE_CLOSED,
                                    .gate = card.mode != PARTAGE_MODE_NONE};
    limits.card[0] = card;
    return scratch_path(tenant, "limits", path) && file_write(path, &limits, sizeof limits, 0644, 0, 0);
}

static bool write_region(const struct tenant *tenant)
{
    static struct partage_region region;
    char path[PATH_BYTES];
    region.magic = PARTAGE_REGION_MAGIC;
    region.version = PARTAGE_VERSION;
    region.size = sizeof region;
    return scratch_path(tenant, "region", path) &&
           file_write(path, &region, sizeof region, 0600, tenant->uid, tenant->gid);
}

static bool link_seats(const struct tenant *tenant, const char *uuid)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    return scratch_path(tenant, "seats-0", path) && path_join(target, "../../seats/%s", uuid) &&
           !symlink(target, path);
}

static bool make(const struct tenant *tenant, const char *uuid, struct partage_limits_card card,
                 struct problem *problem)
{
    char scratch[PATH_BYTES], path[PATH_BYTES];
    if (!scratch_path(tenant, "", scratch) || mkdir(scratch, 0700))
        return not_written(tenant, problem);
    if (!seat_take(tenant, uuid, card.uuid, &card.seat, problem))
        return false;
    tenant_path(tenant, "", path);
    if (!write_limits(tenant, card) || !write_region(tenant) || !link_seats(tenant, uuid) ||
        chmod(scratch, 0755) || rename(scratch, path))
        return not_written(tenant, problem);
    return true;
}

/* ---- the one of another task --------------------------------------------------------------- */

bool tenant_card(const struct tenant *tenant, char uuid[41], struct problem *problem)
{
    struct partage_limits limits;
    char path[PATH_BYTES], target[PATH_BYTES];
    tenant_path(tenant, "seats-0", path);
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    target[bytes < 0 ? 0 : bytes] = '\0';
    const char *name = strrchr(target, '/');
    tenant_path(tenant, "limits", path);
    if (!name || strlen(name) != 41 || !file_read(path, &limits, sizeof limits) ||
        limits.magic != PARTAGE_LIMITS_MAGIC || limits.version != PARTAGE_VERSION || limits.cards != 1 ||
        limits.card[0].seat >= PARTAGE_SEATS)
        return refuse(problem, "%s is damaged; end the job and start it again", path);
    strcpy(uuid, name + 1);
    return true;
}

static bool is_used(const char *region)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = PARTAGE_SLOTS};
    int file = open(region, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool used = file < 0 ? errno != ENOENT : fcntl(file, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
    if (file >= 0)
        close(file);
    return used;
}

static bool is_of_job(const struct tenant *tenant, const char *uuid)
{
    struct problem none;
    struct stat about;
    char path[PATH_BYTES], linked[41];
    tenant_path(tenant, "region", path);
    return !lstat(path, &about) && about.st_uid == tenant->uid &&
           tenant_card(tenant, linked, &none) && !strcmp(linked, uuid);
}

/* What a job left that is gone: its number was used again, or it was requeued. */
static bool remove_old(const struct tenant *tenant, struct problem *problem)
{
    char path[PATH_BYTES], scratch[PATH_BYTES];
    tenant_path(tenant, "region", path);
    if (is_used(path))
        return refuse(problem, "programs of an earlier job %u still use another card of this node; end them, "
                               "then start the job again", tenant->job);
    tenant_path(tenant, "", path);
    if (!scratch_path(tenant, "", scratch) || rename(path, scratch))
        return not_written(tenant, problem);
    clear_scratch(tenant);
    return true;
}

/* Limits grow only: a step that was given less than the job shares what the job has. */
static bool raise_limits(const struct tenant *tenant, const struct partage_limits_card *wanted,
                         struct problem *problem)
{
    char path[PATH_BYTES];
    tenant_path(tenant, "limits", path);
    int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED
                            : mmap(NULL, sizeof(struct partage_limits), PROT_READ | PROT_WRITE, MAP_SHARED,
                                   file, 0);
    if (file >= 0)
        close(file);
    if (mapped == MAP_FAILED)
        return not_written(tenant, problem);
    struct partage_limits_card *card = &((struct partage_limits *)mapped)->card[0];
    if (wanted->memory_bytes > card->memory_bytes)
        __atomic_store_n(&card->memory_bytes, wanted->memory_bytes, __ATOMIC_RELEASE);
    if (card->mode == wanted->mode && wanted->share > card->share)
        __atomic_store_n(&card->share, wanted->share, __ATOMIC_RELEASE);
    munmap(mapped, sizeof(struct partage_limits));
    return true;
}

bool tenant_make(const struct tenant *tenant, const char *uuid, struct partage_limits_card wanted,
                 struct problem *problem)
{
    int lock = lock_root(tenant);
    if (lock < 0)
        return not_written(tenant, problem);
    bool exists = tenant_exists(tenant), fits = exists && is_of_job(tenant, uuid);
    bool made = (!exists || fits || remove_old(tenant, problem)) &&
                (fits ? raise_limits(tenant, &wanted, problem) : make(tenant, uuid, wanted, problem));
    clear_scratch(tenant);
    close(lock);
    return made;
}
