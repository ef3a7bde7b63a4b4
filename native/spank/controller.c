/* A question to Slurm's controller, for what a step's own data does not tell. It takes milliseconds,
 * and some twenty seconds where the controller does not answer; so it is asked where it must be. */
#define _GNU_SOURCE
#include "spank.h"
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdlib.h>
#include <string.h>

/* The controller tells of all parts of an array or of a heterogeneous job. */
static const job_info_t *find(const job_info_msg_t *answer, unsigned job)
{
    for (uint32_t i = 0; i < answer->record_count; i++)
        if (answer->job_array[i].job_id == job)
            return &answer->job_array[i];
    return NULL;
}

/* One text for each node of the job, in the order of its list of nodes. */
static const char *on_node(const job_info_t *job, const char *node)
{
    struct hostlist *nodes = job->nodes ? slurm_hostlist_create(job->nodes) : NULL;
    int place = nodes && node ? slurm_hostlist_find(nodes, node) : -1;
    if (nodes)
        slurm_hostlist_destroy(nodes);
    return place >= 0 && (uint32_t)place < job->gres_detail_cnt ? job->gres_detail_str[place] : NULL;
}

bool controller_detail(unsigned job, char text[DETAIL_BYTES], struct problem *problem)
{
    job_info_msg_t *answer = NULL;
    errno = 0;
    if (slurm_load_job(&answer, job, SHOW_DETAIL))
        return refuse(problem, "Slurm's controller does not say how much of each card the job has (%s); see "
                               "`scontrol ping`, then start the job again", slurm_strerror(errno));
    const job_info_t *info = find(answer, job);
    const char *detail = info ? on_node(info, getenv("SLURMD_NODENAME")) : NULL; /* slurmd's word */
    bool told = detail && strlen(detail) < DETAIL_BYTES;
    if (told)
        strcpy(text, detail);
    slurm_free_job_info_msg(answer);
    return told || refuse(problem, "Slurm's controller does not say what the job has on this node; see "
                                   "`scontrol show job -d %u`", job);
}
