/* What a step was given, from what Slurm put into its environment, and what that is in limits. Every
 * number is checked: what makes no sense is refused, never guessed. */
#define _GNU_SOURCE
#include "spank.h"
#include <ctype.h>
#include <string.h>

enum { WHOLE_PERCENT = 100, LIST_BYTES = 256 };

static bool parse(const char *text, unsigned *value)
{
    unsigned long long sum = 0;
    if (!text || !*text || strlen(text) > 9)
        return false;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text))
            return false;
        sum = sum * 10 + (unsigned)(*text - '0');
    }
    *value = (unsigned)sum;
    return true;
}

/* A node has shards or percents, never both. The other variable is then a user's own. */
bool request_shares(const struct request *request, enum sharing sharing)
{
    return sharing == SHARING_SHARD ? request->shards != NULL : request->percent != NULL;
}

static bool add_card(struct allocation *allocation, const struct table *table, const char *text,
                     struct problem *problem)
{
    unsigned number;
    const struct table_card *card;
    if (!parse(text, &number))
        return refuse(problem, "the number of the job's card is not a number (%.200s)", text);
    if (!(card = table_find(table, number)))
        return refuse(problem, "card %u is not in the table of cards (it may be lost, or gres.conf has changed); "
                               "run `partage slurm prepare` on the node as root", number);
    for (unsigned i = 0; i < allocation->cards; i++)
        if (allocation->fraction[i].card == card)
            return refuse(problem, "Slurm names card %u of the job twice", number);
    if (allocation->cards == PARTAGE_CARDS)
        return refuse(problem, "the job has parts of more than %u cards; ask for fewer", PARTAGE_CARDS);
    allocation->fraction[allocation->cards++] = (struct fraction){.card = card};
    return true;
}

/* "0", or "0,1" */
static bool find_cards(const char *cards, const struct table *table, struct allocation *allocation,
                       struct problem *problem)
{
    char list[LIST_BYTES];
    if (!cards || !*cards)
        return refuse(problem, "Slurm does not say which card the job has (no SLURM_STEP_GPUS, no "
                               "SLURM_JOB_GPUS); see `partage slurm check` on the node");
    if (strlen(cards) >= sizeof list)
        return refuse(problem, "the list of the job's cards is too long (%.200s)", cards);
    strcpy(list, cards);
    for (char *rest = list, *text; (text = strsep(&rest, ","));)
        if (!add_card(allocation, table, text, problem))
            return false;
    return true;
}

static bool find_part(const char *text, const char *what, unsigned whole, struct fraction *fraction,
                      struct problem *problem)
{
    if (!parse(text, &fraction->part))
        return refuse(problem, "the job's %s are not a number (%.200s)", what, text);
    fraction->whole = whole;
    if (!fraction->part || fraction->part > whole)
        return refuse(problem, "the job has %u %s of card %u, and the card has %u; compare gres.conf with "
                               "`partage slurm check`, then run `partage slurm prepare` on the node as root",
                      fraction->part, what, fraction->card->number, whole);
    return true;
}

bool request_allocation(const struct request *request, const struct table *table,
                        struct allocation *allocation, struct problem *problem)
{
    bool shards = table->sharing == SHARING_SHARD;
    *allocation = (struct allocation){0};
    if (!find_cards(request->cards, table, allocation, problem))
        return false;
    if (allocation->cards > 1)
        return true;
    struct fraction *only = &allocation->fraction[0];
    return shards ? find_part(request->shards, "shards", only->card->shares, only, problem)
                  : find_part(request->percent, "percent", WHOLE_PERCENT, only, problem);
}

struct partage_limits_card fraction_limits(const struct fraction *fraction, enum compute compute)
{
    const struct table_card *card = fraction->card;
    struct partage_limits_card limits = {
        .memory_bytes =
            (uint64_t)((unsigned __int128)card->memory_bytes * fraction->part / fraction->whole),
        .context_bytes = card->context_bytes,
    };
    memcpy(limits.uuid, card->raw_uuid, sizeof limits.uuid);
    uint64_t share = (uint64_t)PARTAGE_WHOLE * fraction->part / fraction->whole;
    if (compute == COMPUTE_NONE)
        return limits;
    limits.share = share ? (uint32_t)share : 1;
    limits.mode = compute == COMPUTE_BURST ? PARTAGE_MODE_BURST : PARTAGE_MODE_FIXED;
    limits.ceiling = compute == COMPUTE_BURST ? PARTAGE_WHOLE : 0;
    return limits;
}
