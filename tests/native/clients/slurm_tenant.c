/* Puts a step into the tenant of its job as the plugin of Slurm does, without Slurm:
 * slurm_tenant ROOT JOB UID GID SHARDS PERCENT CARDS COMPUTE STEP DETAIL
 * "-" is a variable that is not set, and a controller that does not answer; STEP may be "batch", and
 * "end 3" ends step 3. It says "made", and the environment of the task in further lines. */
#include "spank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *detail;
static bool asked;

static const char *variable(const char *word) { return strcmp(word, "-") ? word : NULL; }

void note(const char *text) { printf("note: %s\n", text); }

bool controller_detail(unsigned job, char text[DETAIL_BYTES], struct problem *problem)
{
    asked = true;
    if (!detail)
        return refuse(problem, "nobody says what job %u has", job);
    snprintf(text, DETAIL_BYTES, "%s", detail);
    return true;
}

static int make(const struct tenant *tenant, const struct request *request, bool batch, enum compute compute)
{
    static struct table table;
    struct holding holding;
    struct variables values;
    struct problem problem;
    if (!table_read(&table, tenant->root, &problem))
        return puts(problem.text), 1;
    if (!request_shares(request, table.sharing) && !tenant_exists(tenant))
        return puts("left alone"), 0;
    if (!step_join(tenant, request, &table, batch, compute, &problem) ||
        !tenant_read(tenant, &holding, &problem) ||
        !variables_of(tenant, &holding, &values, &problem))
        return puts(problem.text), 1;
    printf("made%s\n%s\n%s\n%s\n", asked ? ", asked" : "", values.cards, values.memory, values.percent);
    return 0;
}

int main(int count, char *words[])
{
    if (count != 11)
        return 2;
    struct tenant tenant = {.root = words[1],
                            .job = (unsigned)atoi(words[2]),
                            .uid = (uid_t)atoi(words[3]),
                            .gid = (gid_t)atoi(words[4])};
    struct request request = {variable(words[5]), variable(words[6]), variable(words[7])};
    bool batch = !strcmp(words[9], "batch"), end = !strncmp(words[9], "end ", 4);
    detail = variable(words[10]);
    tenant.group = batch ? 0xfffffffcu : (uint32_t)atoi(words[9] + (end ? 4 : 0)) + 1;
    if (end)
        return group_remove(&tenant), 0;
    return make(&tenant, &request, batch, (enum compute)atoi(words[8]));
}
