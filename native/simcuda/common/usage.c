/* Who uses a card, and how much: from the shares and the runs of its processes. */
#include "common/usage.h"

#include "common/pids.h"

static uint64_t window_start(const struct card *card, unsigned slot, uint64_t from_ns)
{
    return later(from_ns, share_known_since_locked(card, slot));
}

static struct usage usage_of(const struct card *card, unsigned slot, uint64_t from_ns,
                             uint64_t until_ns)
{
    const struct share *share = &card->shares[slot];
    uint64_t since_ns = window_start(card, slot, from_ns);
    return (struct usage){
        .slot = slot,
        .used_bytes = share->used_bytes,
        .total_ns = share->busy_ns - share_busy_locked(card, slot, until_ns, UINT64_MAX),
        .busy_ns = share_busy_locked(card, slot, since_ns, until_ns),
        .window_ns = until_ns > since_ns ? until_ns - since_ns : 0,
    };
}

/* Without the card's mutex: it takes the kernel's files. */
static unsigned keep_seen(const struct attachment *here, struct usage usage[SLOTS], unsigned count)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++)
        if ((usage[i].pid = pid_seen(here->machine, usage[i].slot)))
            usage[kept++] = usage[i];
    return kept;
}

unsigned card_usage(const struct attachment *here, struct card *card, uint64_t window_ns,
                    struct usage usage[SLOTS])
{
    unsigned count = 0;
    card_lock(card);
    card_sweep_locked(here, card);
    uint64_t until_ns = now_ns(), from_ns = queue_time_locked(card, until_ns - window_ns);
    until_ns = queue_time_locked(card, until_ns);
    for (unsigned i = 0; i < here->machine->slots_used; i++)
        if (card->shares[i].context_count)
            usage[count++] = usage_of(card, i, from_ns, until_ns);
    card_unlock(card);
    return keep_seen(here, usage, count);
}

/* Also of processes that died meanwhile, as long as their slots are not used again. */
unsigned card_busy_percent(const struct attachment *here, struct card *card, uint64_t window_ns)
{
    uint64_t percent = 0;
    card_lock(card);
    card_sweep_locked(here, card);
    uint64_t until_ns = now_ns(), from_ns = queue_time_locked(card, until_ns - window_ns);
    until_ns = queue_time_locked(card, until_ns);
    for (unsigned i = 0; i < here->machine->slots_used; i++) {
        struct usage usage = usage_of(card, i, from_ns, until_ns);
        percent += usage_percent(usage.busy_ns * 100, usage.window_ns);
    }
    card_unlock(card);
    return (unsigned)earlier((percent + 50) / 100, 100);
}
