/* The plugin of Slurm (SPANK): each task of a job that has a part of a card starts behind the fence, or
 * not at all. A job with whole cards, or with none, is left alone.
 *
 * In plugstack.conf:  required /path/partage_spank.so [root=DIR] [compute=none|share|burst]
 *                                                     [userns=forbid|allow] */
#define _GNU_SOURCE
#include "spank.h"
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(partage, 1)

#define DEFAULT_ROOT "/run/partage/slurm"
enum { VALUE_BYTES = 256 };

struct settings {
    const char *root;
    enum compute compute;
    bool confined;
};

static const char *value_of(const char *argument, const char *name)
{
    size_t bytes = strlen(name);
    return strncmp(argument, name, bytes) ? NULL : argument + bytes;
}

static int chosen(const char *value, const char *const words[], int count)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(value, words[i]))
            return i;
    return -1;
}

static bool set(struct settings *settings, const char *argument)
{
    static const char *const computes[] = {"none", "share", "burst"}, *const namespaces[] = {"allow", "forbid"};
    const char *value;
    int choice;
    if ((value = value_of(argument, "root=")))
        return settings->root = value, *value == '/' && strlen(value) < PATH_BYTES / 2;
    if ((value = value_of(argument, "compute=")))
        return choice = chosen(value, computes, 3), settings->compute = (enum compute)choice, choice >= 0;
    if ((value = value_of(argument, "userns=")))
        return choice = chosen(value, namespaces, 2), settings->confined = choice == 1, choice >= 0;
    return false;
}

static bool read_settings(struct settings *settings, int count, char *arguments[], struct problem *problem)
{
    *settings = (struct settings){DEFAULT_ROOT, COMPUTE_BURST, true};
    for (int i = 0; i < count; i++)
        if (!set(settings, arguments[i]))
            return refuse(problem, "%.200s in plugstack.conf is none of root=DIR, compute=none|share|burst, "
                                   "userns=forbid|allow; correct it", arguments[i]);
    return true;
}

/* NULL if the variable is not set; what is too long is no number, and is refused as such. */
static const char *variable(spank_t spank, const char *name, char value[VALUE_BYTES])
{
    spank_err_t error = spank_getenv(spank, name, value, VALUE_BYTES);
    if (error == ESPANK_ENV_NOEXIST)
        return NULL;
    return error == ESPANK_SUCCESS ? value : "a value that is too long";
}

static bool find_job(spank_t spank, struct tenant *tenant, uint32_t *step, struct problem *problem)
{
    uint32_t job;
    if (spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_JOB_STEPID, step) ||
        spank_get_item(spank, S_JOB_UID, &tenant->uid) || spank_get_item(spank, S_JOB_GID, &tenant->gid))
        return refuse(problem, "Slurm does not say whose job this is");
    tenant->job = job;
    tenant->group = *step + 1;
    return true;
}

/* Behind the fence the job's cards are the only ones. Slurm counts so itself where it constrains
 * devices, else it counts all cards of the node. */
static bool tell_task(spank_t spank, const struct tenant *tenant, const struct holding *holding,
                      struct problem *problem)
{
    struct variables values;
    if (!variables_of(tenant, holding, &values, problem))
        return false;
    const char *const pairs[][2] = {{"CUDA_VISIBLE_DEVICES", values.cards},
                                    {"PARTAGE_NAME", values.name},
                                    {"PARTAGE_FENCE", "hook"},
                                    {"PARTAGE_MEMORY_BYTES", values.memory},
                                    {"PARTAGE_COMPUTE_PERCENT", values.percent}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (*pairs[i][1] ? spank_setenv(spank, pairs[i][0], pairs[i][1], 1) != ESPANK_SUCCESS
                         : (spank_unsetenv(spank, pairs[i][0]), false))
            return refuse(problem, "%s cannot be set", pairs[i][0]);
    return true;
}

/* Who is put behind the fence: a task, or what slurmstepd starts itself. */
enum fenced { A_TASK, WHAT_FOLLOWS_TASKS };

static bool fence_tenant(spank_t spank, const struct settings *settings, const struct tenant *tenant,
                         const struct request *request, bool of_job, enum fenced fenced,
                         struct problem *problem)
{
    static struct table table;
    struct holding holding;
    if (!table_read(&table, settings->root, problem))
        return false;
    if (!request_shares(request, table.sharing) && !tenant_exists(tenant))
        return true; /* whole cards, and a variable of the user's own */
    return step_join(tenant, request, &table, of_job, settings->compute, problem) &&
           tenant_read(tenant, &holding, problem) && places_enter(tenant, &holding, &table, problem) &&
           (fenced != A_TASK || tell_task(spank, tenant, &holding, problem)) &&
           (!settings->confined || confinement_begin(problem));
}

/* In a job's script, and in the shell that `salloc` opens, Slurm writes SLURM_JOB_GPUS; in other steps
 * SLURM_STEP_GPUS. The other one is what the user had where the job was submitted. */
static bool is_of_job(uint32_t step) { return step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP; }

static bool fence(spank_t spank, int count, char *arguments[], enum fenced fenced, struct problem *problem)
{
    char shards[VALUE_BYTES], percent[VALUE_BYTES], cards[VALUE_BYTES];
    struct settings settings;
    struct tenant tenant;
    uint32_t step;
    if (!find_job(spank, &tenant, &step, problem))
        return false;
    bool of_job = is_of_job(step);
    struct request request = {
        .shards = variable(spank, "SLURM_SHARDS_ON_NODE", shards),
        .percent = variable(spank, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percent),
        .cards = variable(spank, of_job ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS", cards),
    };
    bool whole = !request.shards && !request.percent;
    if (!read_settings(&settings, count, arguments, problem))
        return whole; /* a slip in plugstack.conf stops those alone who need the plugin */
    tenant.root = settings.root;
    if (step == SLURM_EXTERN_CONT || (whole && !tenant_exists(&tenant)))
        return true; /* the extern step starts nothing for the user */
    return fence_tenant(spank, &settings, &tenant, &request, of_job, fenced, problem);
}

/* Slurm gives a job the environment in which it was submitted. If that was in a job with shards, it would
 * say of a job with whole cards that it has shards, or is behind a fence: nobody else sets or clears these. */
int slurm_spank_init(spank_t spank, int count, char *arguments[])
{
    static const char *const of_another[] = {"SLURM_SHARDS_ON_NODE", "PARTAGE_NAME", "PARTAGE_FENCE",
                                             "PARTAGE_MEMORY_BYTES", "PARTAGE_COMPUTE_PERCENT"};
    (void)spank, (void)count, (void)arguments;
    if (spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR)
        for (size_t i = 0; i < sizeof of_another / sizeof *of_another; i++)
            unsetenv(of_another[i]);
    return 0;
}

void note(const char *text) { slurm_info("Partage: %s", text); }

int slurm_spank_task_init_privileged(spank_t spank, int count, char *arguments[])
{
    struct problem problem;
    if (fence(spank, count, arguments, A_TASK, &problem))
        return 0;
    slurm_error("Partage: the task is not started, because its share of the card cannot be held: %s",
                problem.text);
    return -1;
}

/* After a task slurmstepd itself runs an epilog as the user, who names the program (`srun --task-epilog`).
 * Such programs have the view of slurmstepd's own thread, so that goes behind the fence as well, when it
 * has made all tasks. To fail here would take the node out of use: no program is started then. */
int slurm_spank_task_post_fork(spank_t spank, int count, char *arguments[])
{
    static bool entered;
    struct problem problem;
    if (!entered && !fence(spank, count, arguments, WHAT_FOLLOWS_TASKS, &problem)) {
        slurm_verbose("Partage: no program is started after the tasks: %s", problem.text);
        if (!confinement_total(&problem))
            slurm_error("Partage: %s", problem.text);
    }
    entered = true;
    return 0;
}

/* The step is over, and slurmstepd has ended all that it left: what it had within its job is free. */
int slurm_spank_exit(spank_t spank, int count, char *arguments[])
{
    struct problem none;
    struct settings settings;
    struct tenant tenant;
    uint32_t step;
    if (spank_remote(spank) == 1 && read_settings(&settings, count, arguments, &none) &&
        find_job(spank, &tenant, &step, &none)) {
        tenant.root = settings.root;
        group_remove(&tenant);
    }
    return 0;
}
