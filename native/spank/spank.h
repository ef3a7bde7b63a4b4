/* What happens to a job of Slurm before its task starts: its tenant's files are made, and put where
 * the fence looks for them. All of it runs as root in slurmstepd, in the process that becomes the
 * task, and in the thread that starts what comes after tasks. What Slurm does not tell is in a table
 * that `partage slurm prepare` wrote: no NVML here. */
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
void note(const char *text); /* a line for people, in Slurm's log or in the job's output */

/* ---- card_table.c -------------------------------------------------------------------------- */

enum sharing { SHARING_SHARD, SHARING_MPS };

struct table_card {
    unsigned number; /* Slurm's, as SLURM_STEP_GPUS has it */
    char uuid[41];   /* GPU-8-4-4-4-12 */
    uint8_t raw_uuid[16];
    uint64_t memory_bytes, context_bytes;
    unsigned shares; /* of the whole card, as gres.conf counts them */
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
    unsigned part, whole; /* 0: Slurm does not tell how much it is */
};

/* What a job or a step has on this node. */
struct allocation {
    unsigned cards;
    struct fraction fraction[PARTAGE_CARDS];
};

bool request_shares(const struct request *request, enum sharing sharing);
/* How much a step has of its card; of several cards Slurm tells only which. */
bool request_allocation(const struct request *request, const struct table *table,
                        struct allocation *allocation, struct problem *problem);
struct partage_limits_card fraction_limits(const struct fraction *fraction, enum compute compute);

/* ---- detail.c ------------------------------------------------------------------------------ */

/* What a job has on a node, from the controller's text: "shard:8(IDX:1)", "shard:20(16/16,4/16)". */
bool detail_allocation(const char *text, const struct table *table, struct allocation *allocation,
                       struct problem *problem);

/* ---- controller.c -------------------------------------------------------------------------- */

enum { DETAIL_BYTES = 4096 };
/* Asks Slurm's controller what a job has on this node; the text for detail_allocation. */
bool controller_detail(unsigned job, char text[DETAIL_BYTES], struct problem *problem);

/* ---- holding.c ----------------------------------------------------------------------------- */

/* A job on this node, and which of its steps this is. */
struct tenant {
    const char *root;
    unsigned job;
    uint32_t group; /* the step's number, counted from 1 */
    uid_t uid;
    gid_t gid;
};

/* What a tenant has, as its files say. */
struct holding {
    struct partage_limits limits;
    char uuid[PARTAGE_CARDS][41];
    bool in_full; /* the job has no more than this; else it is what its steps so far have */
};

#define TENANT_NAME "job-%u"
#define TENANT_IN_FULL "in-full" /* a file of the tenant's that says so by being there */

void tenant_path(const struct tenant *tenant, const char *name, char path[PATH_BYTES]);
bool tenant_exists(const struct tenant *tenant);
bool tenant_read(const struct tenant *tenant, struct holding *holding, struct problem *problem);
/* Which of its cards it is; -1: none. */
int holding_find(const struct holding *holding, const char *uuid);

/* ---- tenant.c ------------------------------------------------------------------------------ */

/* What is known of a job: what one of its steps has, all that it has, or no more than the step tells
 * because nobody could be asked. */
enum extent { EXTENT_STEP, EXTENT_JOB, EXTENT_UNKNOWN };
enum joined { JOINED, JOIN_REFUSED, JOIN_ASK };

/* Refuses because of errno, and says what to do about it. */
bool not_written(const struct tenant *tenant, struct problem *problem);

/* Makes the tenant, or takes the one that another task of the job made; then the step's own limits
 * in it. `step` is what the step has, NULL: no part of its own. JOIN_ASK: nothing was made, as the
 * job must have more than its steps tell. */
enum joined tenant_join(const struct tenant *tenant, const struct allocation *job, enum extent extent,
                        const struct allocation *step, enum compute compute, struct problem *problem);

/* ---- joining.c ----------------------------------------------------------------------------- */

/* Puts a step into its job's tenant, which is made if need be; asks the controller where the step's own
 * data does not tell enough. `of_job`: the step has what the job has here, as the job's script has. */
bool step_join(const struct tenant *tenant, const struct request *request, const struct table *table,
               bool of_job, enum compute compute, struct problem *problem);

/* ---- variables.c --------------------------------------------------------------------------- */

enum { VARIABLE_BYTES = PARTAGE_CARDS * 64 };
struct variables {
    char cards[VARIABLE_BYTES], memory[VARIABLE_BYTES], percent[VARIABLE_BYTES], name[32];
};
bool variables_of(const struct tenant *tenant, const struct holding *holding, struct variables *variables,
                  struct problem *problem);

/* ---- group.c ------------------------------------------------------------------------------- */

/* Another task of the step has made it. */
bool group_exists(const struct tenant *tenant);
/* Writes what a step has, in a scratch folder and with the root's lock. */
bool group_make(const struct tenant *tenant, const struct holding *holding, const char *scratch,
                const struct allocation *step, enum compute compute);
bool group_read(const struct tenant *tenant, struct partage_group_limits *limits, struct problem *problem);
void group_path(const struct tenant *tenant, const char *kind, char path[PATH_BYTES]);
/* What the other steps of the job have of a card. */
uint64_t groups_bytes(const struct tenant *tenant, int card);
void group_remove(const struct tenant *tenant);

/* ---- seat.c -------------------------------------------------------------------------------- */

bool seat_take(const struct tenant *tenant, const char *uuid, const uint8_t raw_uuid[16], uint32_t *seat,
               struct problem *problem);
/* What other tenants have of a card's memory. */
bool seats_memory(const struct tenant *tenant, const char *uuid, uint64_t *memory_bytes);

/* ---- files.c ------------------------------------------------------------------------------- */

bool path_join(char path[PATH_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
bool file_write(const char *path, const void *content, size_t bytes, mode_t mode, uid_t uid, gid_t gid);
/* The whole file into memory that has room for exactly that; false for any other size. */
bool file_read(const char *path, void *content, size_t bytes);
bool folder_make(const char *path, mode_t mode);
void folder_clear(const char *path);

/* ---- places.c, confinement.c --------------------------------------------------------------- */

bool places_enter(const struct tenant *tenant, const struct holding *holding, const struct table *table,
                  struct problem *problem);
bool confinement_begin(struct problem *problem);
/* The calling thread can start no program any more. */
bool confinement_total(struct problem *problem);
