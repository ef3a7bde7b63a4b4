/* Makes the tenant of a job as the plugin of Slurm does, without Slurm:
 * slurm_tenant ROOT JOB UID GID SHARDS PERCENT CARDS COMPUTE; "-" is a variable that is not set. */
#include "spank.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *word) { return strcmp(word, "-") ? word : NULL; }

int main(int count, char *words[])
{
    static struct table table;
    struct fraction fraction;
    struct problem problem;
    if (count != 9)
        return 2;
    struct tenant tenant = {words[1], (unsigned)atoi(words[2]), (uid_t)atoi(words[3]), (gid_t)atoi(words[4])};
    struct request request = {variable(words[5]), variable(words[6]), variable(words[7])};
    enum compute compute = (enum compute)atoi(words[8]);
    if (!table_read(&table, words[1], &problem))
        return puts(problem.text), 1;
    if (!request_shares(&request, table.sharing))
        return puts("left alone"), 0;
    if (!request_fraction(&request, &table, &fraction, &problem) ||
        !tenant_make(&tenant, fraction.card->uuid, fraction_limits(&fraction, compute), &problem))
        return puts(problem.text), 1;
    return puts("made"), 0;
}
