/* How a step comes into its job's tenant. What it has itself is in its environment. What its job has is
 * there, too, unless the job has parts of several cards, or this is a node without the job's script and
 * its steps have parts of different sizes: then the controller is asked, once for the job and node. */
#define _GNU_SOURCE
#include "spank.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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

/* One of a job asks at a time; it is let go by closing. Where it cannot be had, two may ask the same. */
static int begin_asking(const struct tenant *tenant)
{
    struct flock turn = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = tenant->job, .l_len = 1};
    char path[PATH_BYTES];
    int file = path_join(path, "%s/lock", tenant->root) ? open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
    while (file >= 0 && fcntl(file, F_OFD_SETLKW, &turn) && errno == EINTR)
        ;
    return file;
}

bool step_join(const struct tenant *tenant, const struct request *request, const struct table *table,
               bool of_job, enum compute compute, struct problem *problem)
{
    struct allocation step;
    if (!request_shares(request, table->sharing))
        return tenant_join(tenant, NULL, EXTENT_STEP, NULL, compute, problem) == JOINED;
    if (!request_allocation(request, table, &step, problem))
        return false;
    enum extent extent = of_job && step.cards == 1 ? EXTENT_JOB : EXTENT_STEP;
    enum joined joined = tenant_join(tenant, &step, extent, &step, compute, problem);
    if (joined != JOIN_ASK)
        return joined == JOINED;
    int asking = begin_asking(tenant);
    joined = tenant_join(tenant, &step, extent, &step, compute, problem); /* who was first knows */
    bool good = joined == JOIN_ASK ? join_as_told(tenant, table, &step, compute, problem) : joined == JOINED;
    if (asking >= 0)
        close(asking);
    return good;
}
