/* What a task finds in its environment: the cards by which CUDA knows them behind the fence, and what it
 * has of each, as `partage run` tells it. */
#define _GNU_SOURCE
#include "spank.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { MILLIONTHS_PER_PERCENT = 10000 };

static void append(char text[VARIABLE_BYTES], size_t *length, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char text[VARIABLE_BYTES], size_t *length, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(text + *length, VARIABLE_BYTES - *length, format, arguments);
    va_end(arguments);
    *length += bytes > 0 ? (size_t)bytes : 0; /* 16 cards fit */
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

bool variables_of(const struct tenant *tenant, const struct holding *holding, struct variables *variables,
                  struct problem *problem)
{
    struct partage_group_limits group;
    size_t cards = 0, memory = 0, percent = 0;
    *variables = (struct variables){0};
    if (!group_read(tenant, &group, problem))
        return false;
    for (unsigned card = 0; card < holding->limits.cards; card++) {
        const struct partage_limits_card *job = &holding->limits.card[card];
        uint64_t bytes = smaller(job->memory_bytes, group.card[card].memory_bytes);
        uint32_t share = group.card[card].share ? group.card[card].share : job->share;
        if (!bytes)
            continue;
        append(variables->cards, &cards, "%s%u", cards ? "," : "", card);
        append(variables->memory, &memory, "%s%s=%" PRIu64, memory ? "," : "", holding->uuid[card], bytes);
        if (share)
            append(variables->percent, &percent, "%s%s=%g", percent ? "," : "", holding->uuid[card],
                   (double)share / MILLIONTHS_PER_PERCENT);
    }
    snprintf(variables->name, sizeof variables->name, "job-%u", tenant->job);
    return cards || refuse(problem, "Slurm's controller names other cards for the job than the step has; see "
                                    "`scontrol show job -d %u`", tenant->job);
}
