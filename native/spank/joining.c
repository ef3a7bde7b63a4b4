/* How a step comes into its job's tenant. What it has itself is in its environment. What its job has is
 * there, too, unless the job has parts of several cards, or this is a node without the job's script and
 * its steps have parts of different sizes: then the controller is asked, once for the job and node. */
#define _GNU_SOURCE
#include "spank.h"

static bool join_as_told(const struct tenant *tenant, const struct table *table, const struct allocation *step,
                         enum compute compute, struct problem *problem)
{
    char text[DETAIL_BYTES];
    struct allocation job;
    bool told = controller_detail(tenant->job, text, problem) &&
                detail_allocation(text, table, &job, problem);
    if (!told && step->cards > 1)
        return false;
    if (!told)
        note(problem->text); /* the steps of the job then share what the largest of them has */
    return tenant_join(tenant, told ? &job : step, told ? EXTENT_JOB : EXTENT_UNKNOWN, step, compute,
                       problem) == JOINED;
}

bool step_join(const struct tenant *tenant, const struct request *request, const struct table *table,
               bool batch, enum compute compute, struct problem *problem)
{
    struct allocation step;
    if (!request_shares(request, table->sharing))
        return tenant_join(tenant, NULL, EXTENT_STEP, NULL, compute, problem) == JOINED;
    if (!request_allocation(request, table, &step, problem))
        return false;
    enum extent extent = batch && step.cards == 1 ? EXTENT_JOB : EXTENT_STEP;
    enum joined joined = tenant_join(tenant, &step, extent, &step, compute, problem);
    return joined == JOIN_ASK ? join_as_told(tenant, table, &step, compute, problem) : joined == JOINED;
}
