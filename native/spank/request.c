/* What a step was given, from what Slurm put into its environment, and what that is in limits. Every
 * number is checked: what makes no sense is refused, never guessed. */
#define _GNU_SOURCE
#include "spank.h"
#include <ctype.h>
#include <string.h>

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

static bool find_card(const char *cards, const struct table *table, const struct table_card **card,
                      struct problem *problem)
{
    unsigned number;
    if (!cards || !*cards)
        return refuse(problem, "Slurm does not say which card the job has (no SLURM_STEP_GPUS, no "
                               "SLURM_JOB_GPUS); see `partage slurm check` on the node");
    if (strchr(cards, ',') || strchr(cards, '-'))
        return refuse(problem, "the job has parts of several cards (%.200s), and Slurm does not tell a "
                               "node how much of each; ask for less than one card, or for whole cards "
                               "(--gres=gpu:N)", cards);
    if (!parse(cards, &number))
        return refuse(problem, "the number of the job's card is not a number (%.200s)", cards);
    if (!(*card = table_find(table, number)))
        return refuse(problem, "card %u is not in the table of cards; run `partage slurm prepare` on the "
                               "node as root", number);
    return true;
}

bool request_fraction(const struct request *request, const struct table *table, struct fraction *fraction,
                      struct problem *problem)
{
    bool shards = table->sharing == SHARING_SHARD;
    const char *text = shards ? request->shards : request->percent;
    const char *what = shards ? "shards" : "percent";
    if (!find_card(request->cards, table, &fraction->card, problem))
        return false;
    if (!parse(text, &fraction->part))
        return refuse(problem, "the job's %s are not a number (%.200s)", what, text);
    fraction->whole = shards ? fraction->card->shards : 100;
    if (!fraction->part || fraction->part > fraction->whole)
        return refuse(problem, "the job has %u %s of card %u, and the card has %u; compare gres.conf with "
                               "`partage slurm check`, then run `partage slurm prepare` on the node as root",
                      fraction->part, what, fraction->card->number, fraction->whole);
    return true;
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
