/* What happens to a job of Slurm before its task starts: its tenant's files are made, and put where
 * the fence looks for them. All of it runs as root in slurmstepd, in the process that becomes the
 * task. What Slurm does not tell is in a table that `partage slurm prepare` wrote: no NVML here. */
#pragma once
#include "../fence/layout.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PATH_BYTES = 1024, PROBLEM_BYTES = 900, TABLE_CARDS = 64, TABLE_PLACES = 8 };

/* Why a task must not start, and what to do about it. */
struct problem {
    char text[PROBLEM_BYTES];
};
bool refuse(struct problem *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- card_table.c -------------------------------------------------------------------------- */

enum sharing { SHARING_SHARD, SHARING_MPS };

struct table_card {
    unsigned number; /* Slurm's, as SLURM_STEP_GPUS has it */
    char uuid[41];   /* GPU-8-4-4-4-12 */
    uint8_t raw_uuid[16];
    uint64_t memory_bytes, context_bytes;
    unsigned shards; /* of the whole card; 0 where percents are given out */
};

/* One of the driver's files, and what stands in its place. */
struct table_place {
    char ours[PATH_BYTES], target[PATH_BYTES], behind[64];
};

struct table {
    enum sharing sharing;
    char around[PATH_BYTES], preload[PATH_BYTES], library[PATH_BYTES];
    unsigned cards, places;
    struct table_card card[TABLE_CARDS];
    struct table_place place[TABLE_PLACES];
};

bool table_read(struct table *table, const char *root, struct problem *problem);
const struct table_card *table_find(const struct table *table, unsigned number);

/* ---- request.c ----------------------------------------------------------------------------- */

enum compute { COMPUTE_NONE, COMPUTE_SHARE, COMPUTE_BURST };

/* What Slurm says of a step; NULL is a variable that is not set. */
struct request {
    const char *shards, *percent, *cards;
};

/* So much of so many. */
struct fraction {
    const struct table_card *card;
    unsigned part, whole;
};

bool request_shares(const struct request *request, enum sharing sharing);
bool request_fraction(const struct request *request, const struct table *table, struct fraction *fraction,
                      struct problem *problem);
struct partage_limits_card fraction_limits(const struct fraction *fraction, enum compute compute);

/* ---- tenant.c ------------------------------------------------------------------------------ */

struct tenant {
    const char *root;
    unsigned job;
    uid_t uid;
    gid_t gid;
};

bool tenant_exists(const struct tenant *tenant);
/* Makes the tenant, or takes the one that another task of the job made. A step with more than the
 * tenant has raises its limits. */
bool tenant_make(const struct tenant *tenant, const char *uuid, struct partage_limits_card wanted,
                 struct problem *problem);
/* The card of a tenant that is there. */
bool tenant_card(const struct tenant *tenant, char uuid[41], struct problem *problem);
void tenant_path(const struct tenant *tenant, const char *name, char path[PATH_BYTES]);

/* ---- seat.c -------------------------------------------------------------------------------- */

bool seat_take(const struct tenant *tenant, const char *uuid, const uint8_t raw_uuid[16], uint32_t *seat,
               struct problem *problem);

/* ---- files.c ------------------------------------------------------------------------------- */

bool path_join(char path[PATH_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
bool file_write(const char *path, const void *content, size_t bytes, mode_t mode, uid_t uid, gid_t gid);
/* The whole file into memory that has room for exactly that; false for any other size. */
bool file_read(const char *path, void *content, size_t bytes);
bool folder_make(const char *path, mode_t mode);
void folder_clear(const char *path);

/* ---- places.c, confinement.c --------------------------------------------------------------- */

bool places_enter(const struct tenant *tenant, const struct table *table, struct problem *problem);
bool confinement_begin(struct problem *problem);
