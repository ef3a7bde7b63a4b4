/* The tenant of a job, made as src/partage/fence/store/tenants.py makes one: under the root's lock, in
 * a scratch folder, visible by one rename. All tasks and steps of a job on a node share one.
 *
 * A step tells what it has itself, and not what its job has. The batch step has all that the job has on
 * its node; elsewhere the limits are those of the steps so far, and the controller is asked when a step
 * comes that needs more than that. */
#define _GNU_SOURCE
#include "spank.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool not_written(const struct tenant *tenant, struct problem *problem)
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

static bool write_limits(const struct tenant *tenant, const struct holding *holding)
{
    char path[PATH_BYTES];
    return scratch_path(tenant, "limits", path) &&
           file_write(path, &holding->limits, sizeof holding->limits, 0644, 0, 0) &&
           (!holding->in_full ||
            (scratch_path(tenant, TENANT_IN_FULL, path) && file_write(path, "", 0, 0644, 0, 0)));
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

/* Slurm gives away what it counts. Where its count is not that of the table, as after a change of
 * gres.conf that slurmd has not read, a card would be given away twice. */
static bool has_room(const struct tenant *tenant, const struct table_card *card, uint64_t memory_bytes,
                     struct problem *problem)
{
    uint64_t others;
    if (!seats_memory(tenant, card->uuid, &others))
        return not_written(tenant, problem);
    if (others <= card->memory_bytes && memory_bytes <= card->memory_bytes - others)
        return true;
    return refuse(problem, "card %u has %" PRIu64 " MiB, other jobs have %" PRIu64 " of them, and this one would "
                           "have %" PRIu64 ": Slurm counts otherwise than %s/cards; restart slurmd if gres.conf "
                           "has changed, and remove what a job left that has ended (`partage slurm epilog --job JOB`)",
                  card->number, card->memory_bytes >> 20, others >> 20, memory_bytes >> 20, tenant->root);
}

/* A link of a card that the limits do not have yet was left by a step that did not come to its end. */
static bool link_seats(const char *folder, unsigned card, const char *uuid)
{
    char path[PATH_BYTES], target[PATH_BYTES];
    return path_join(path, "%s/seats-%u", folder, card) && path_join(target, "../../seats/%s", uuid) &&
           (!unlink(path) || errno == ENOENT) && !symlink(target, path);
}

/* A seat at one more card, and what the job has of it; the tenant's links are in `folder`. */
static bool add_card(const struct tenant *tenant, struct holding *holding, const char *folder,
                     const struct fraction *fraction, enum compute compute, struct problem *problem)
{
    unsigned card = holding->limits.cards;
    if (!fraction->part)
        return refuse(problem, "Slurm does not say how much of card %u the job has; start the job again",
                      fraction->card->number);
    if (card == PARTAGE_CARDS)
        return refuse(problem, "the job has parts of more than %u cards; ask for fewer", PARTAGE_CARDS);
    struct partage_limits_card limits = fraction_limits(fraction, compute);
    if (!has_room(tenant, fraction->card, limits.memory_bytes, problem))
        return false;
    if (!seat_take(tenant, fraction->card->uuid, limits.uuid, &limits.seat, problem))
        return false;
    if (!link_seats(folder, card, fraction->card->uuid))
        return not_written(tenant, problem);
    holding->limits.card[card] = limits;
    holding->limits.gate |= limits.mode != PARTAGE_MODE_NONE;
    strcpy(holding->uuid[card], fraction->card->uuid);
    holding->limits.cards++;
    return true;
}

static bool make(const struct tenant *tenant, const struct allocation *job, struct holding *holding,
                 enum compute compute, struct problem *problem)
{
    char scratch[PATH_BYTES], path[PATH_BYTES];
    holding->limits = (struct partage_limits){.magic = PARTAGE_LIMITS_MAGIC,
                                              .version = PARTAGE_VERSION,
                                              .size = sizeof holding->limits,
                                              .on_failure = PARTAGE_ON_FAILURE_CLOSED};
    if (!scratch_path(tenant, "", scratch) || !folder_make(scratch, 0700))
        return not_written(tenant, problem);
    for (unsigned i = 0; i < job->cards; i++)
        if (!add_card(tenant, holding, scratch, &job->fraction[i], compute, problem))
            return false;
    tenant_path(tenant, "", path);
    if (!write_limits(tenant, holding) || !write_region(tenant) || chmod(scratch, 0755) ||
        rename(scratch, path))
        return not_written(tenant, problem);
    return true;
}

/* ---- the one of another task --------------------------------------------------------------- */

static bool is_used(const char *region)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = PARTAGE_SLOTS};
    int file = open(region, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool used = file < 0 ? errno != ENOENT : fcntl(file, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
    if (file >= 0)
        close(file);
    return used;
}

/* Its user's, and on no card that the job does not have. */
static bool is_of_job(const struct tenant *tenant, const struct allocation *job, bool in_full,
                      struct holding *holding)
{
    struct problem none;
    struct stat about;
    char path[PATH_BYTES];
    tenant_path(tenant, "region", path);
    if (lstat(path, &about) || about.st_uid != tenant->uid || !tenant_read(tenant, holding, &none))
        return false;
    unsigned common = 0;
    for (unsigned i = 0; i < job->cards; i++)
        common += holding_find(holding, job->fraction[i].card->uuid) >= 0;
    return common == (in_full ? holding->limits.cards : job->cards);
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

static struct partage_limits *map_limits(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    tenant_path(tenant, "limits", path);
    int file = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    void *mapped = file < 0 ? MAP_FAILED
                            : mmap(NULL, sizeof(struct partage_limits), PROT_READ | PROT_WRITE, MAP_SHARED,
                                   file, 0);
    if (file >= 0)
        close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* Programs that run see each word change; a card counts from the moment that `cards` says so. */
static void store(struct partage_limits *mapped, const struct holding *holding)
{
    for (unsigned card = 0; card < holding->limits.cards; card++) {
        const struct partage_limits_card *wanted = &holding->limits.card[card];
        if (card >= mapped->cards)
            mapped->card[card] = *wanted;
        __atomic_store_n(&mapped->card[card].memory_bytes, wanted->memory_bytes, __ATOMIC_RELEASE);
        __atomic_store_n(&mapped->card[card].share, wanted->share, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&mapped->gate, holding->limits.gate, __ATOMIC_RELEASE);
    __atomic_store_n(&mapped->cards, holding->limits.cards, __ATOMIC_RELEASE);
}

static bool raise_card(const struct tenant *tenant, struct partage_limits_card *card,
                       const struct fraction *fraction, enum compute compute, bool in_full,
                       struct problem *problem)
{
    struct partage_limits_card wanted = fraction_limits(fraction, compute);
    if (wanted.memory_bytes > card->memory_bytes &&
        !has_room(tenant, fraction->card, wanted.memory_bytes, problem))
        return false;
    if (in_full || wanted.memory_bytes > card->memory_bytes)
        card->memory_bytes = wanted.memory_bytes;
    if (card->mode == wanted.mode && (in_full || wanted.share > card->share))
        card->share = wanted.share;
    return true;
}

static bool mark_in_full(const struct tenant *tenant)
{
    char path[PATH_BYTES];
    tenant_path(tenant, TENANT_IN_FULL, path);
    return !access(path, F_OK) || file_write(path, "", 0, 0644, 0, 0);
}

/* Limits grow, but to what the job has in full. A step that tells nothing new changes nothing. */
static bool take_over(const struct tenant *tenant, const struct allocation *job, bool in_full,
                      struct holding *holding, enum compute compute, struct problem *problem)
{
    char folder[PATH_BYTES], scratch[PATH_BYTES];
    tenant_path(tenant, "", folder);
    if (!scratch_path(tenant, "", scratch) || !folder_make(scratch, 0700))
        return not_written(tenant, problem);
    for (unsigned i = 0; i < job->cards; i++) {
        const struct fraction *fraction = &job->fraction[i];
        int card = holding_find(holding, fraction->card->uuid);
        if (card >= 0 && !fraction->part)
            continue;
        if (card >= 0 ? !raise_card(tenant, &holding->limits.card[card], fraction, compute, in_full, problem)
                      : !add_card(tenant, holding, folder, fraction, compute, problem))
            return false;
    }
    struct partage_limits *mapped = map_limits(tenant);
    if (!mapped || (in_full && !mark_in_full(tenant)))
        return not_written(tenant, problem);
    store(mapped, holding);
    munmap(mapped, sizeof *mapped);
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool covers(const struct tenant *tenant, const struct holding *holding, const struct fraction *fraction)
{
    int card = holding_find(holding, fraction->card->uuid);
    if (card < 0 || holding->in_full || group_exists(tenant))
        return card >= 0;
    return fraction->part && fraction_limits(fraction, COMPUTE_NONE).memory_bytes + groups_bytes(tenant, card) <=
                                 holding->limits.card[card].memory_bytes;
}

/* What the steps so far have holds this one, too; and what the first one has will do for now. */
static bool is_enough(const struct tenant *tenant, const struct allocation *step)
{
    struct problem none;
    struct holding holding;
    if (!tenant_exists(tenant))
        return step->cards == 1;
    bool enough = tenant_read(tenant, &holding, &none);
    for (unsigned i = 0; enough && i < step->cards; i++)
        enough = covers(tenant, &holding, &step->fraction[i]);
    return enough;
}

static bool make_or_take(const struct tenant *tenant, const struct allocation *job, bool in_full,
                         struct holding *holding, enum compute compute, struct problem *problem)
{
    if (!job)
        return tenant_read(tenant, holding, problem);
    bool exists = tenant_exists(tenant);
    if (exists && is_of_job(tenant, job, in_full, holding))
        return take_over(tenant, job, in_full, holding, compute, problem);
    holding->in_full = in_full;
    return (!exists || remove_old(tenant, problem)) && make(tenant, job, holding, compute, problem);
}

static bool make_group(const struct tenant *tenant, const struct holding *holding,
                       const struct allocation *step, enum compute compute, struct problem *problem)
{
    char scratch[PATH_BYTES];
    bool made = scratch_path(tenant, "", scratch) && folder_make(scratch, 0700) &&
                group_make(tenant, holding, scratch, step, compute);
    return made || not_written(tenant, problem);
}

enum joined tenant_join(const struct tenant *tenant, const struct allocation *job, enum extent extent,
                        const struct allocation *step, enum compute compute, struct problem *problem)
{
    struct holding holding;
    enum joined joined = JOIN_REFUSED;
    int lock = lock_root(tenant);
    if (lock < 0)
        return not_written(tenant, problem), JOIN_REFUSED;
    if (extent == EXTENT_STEP && job && !is_enough(tenant, job))
        joined = JOIN_ASK;
    else if (make_or_take(tenant, job, extent == EXTENT_JOB, &holding, compute, problem) &&
             make_group(tenant, &holding, step, compute, problem))
        joined = JOINED;
    clear_scratch(tenant);
    close(lock);
    return joined;
}
