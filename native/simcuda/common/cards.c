/* A card's mutex, and its memory. */
#include <errno.h>

#include "common/cgroups.h"
#include "common/queue.h"

/*
 * Totals are caches: what counts are the shares, each of them changed by one store. The end of the
 * queue never moves back: places of the dead stay taken, as gaps.
 */
static void recompute(struct card *card)
{
    card->used_bytes = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        card->used_bytes += card->shares[i].used_bytes;
        card->queue_end_ns = later(card->queue_end_ns, card->shares[i].queue_end_ns);
    }
}

void card_lock(struct card *card)
{
    if (pthread_mutex_lock(&card->mutex) != EOWNERDEAD)
        return;
    recompute(card);
    pthread_mutex_consistent(&card->mutex);
}

void card_unlock(struct card *card)
{
    pthread_mutex_unlock(&card->mutex);
}

static bool holds_something(const struct card *card, unsigned slot, uint64_t now_queue_ns)
{
    const struct share *share = &card->shares[slot];
    return share->used_bytes || share->context_count || share->queue_end_ns > now_queue_ns;
}

/* The queue first: a share without memory is only looked at again while it has work to come. */
static void bury(struct card *card, unsigned slot)
{
    struct share *share = &card->shares[slot];
    gaps_add_locked(card, slot);
    share->queue_end_ns = 0;
    share->context_count = 0;
    share->used_bytes = 0;
}

void card_sweep_locked(const struct attachment *here, struct card *card)
{
    uint64_t now_queue_ns = queue_time_locked(card, now_ns());
    bool found = false;
    for (unsigned i = 0; i < here->machine->slots_used; i++) {
        if (!holds_something(card, i, now_queue_ns) || slot_alive(here, i))
            continue;
        bury(card, i);
        found = true;
    }
    if (found)
        recompute(card);
}

void card_sweep(const struct attachment *here, struct card *card)
{
    card_lock(card);
    card_sweep_locked(here, card);
    card_unlock(card);
}

static bool has_room(const struct attachment *here, const struct card *card, uint64_t bytes)
{
    uint64_t capacity = here->machine->facts.cards[card - here->machine->cards].memory_bytes;
    return bytes <= capacity && card->used_bytes <= capacity - bytes &&
           limits_allow(here, card, bytes);
}

bool card_reserve(const struct attachment *here, struct card *card, uint64_t bytes)
{
    card_lock(card);
    bool room = has_room(here, card, bytes);
    if (!room) {
        card_sweep_locked(here, card);
        room = has_room(here, card, bytes);
    }
    if (room) {
        own_share(here, card)->used_bytes += bytes;
        card->used_bytes += bytes;
    }
    card_unlock(card);
    return room;
}

void card_release(const struct attachment *here, struct card *card, uint64_t bytes)
{
    card_lock(card);
    own_share(here, card)->used_bytes -= bytes;
    card->used_bytes -= bytes;
    card_unlock(card);
}

uint64_t card_used(const struct attachment *here, struct card *card)
{
    card_lock(card);
    card_sweep_locked(here, card);
    uint64_t used_bytes = card->used_bytes;
    card_unlock(card);
    return used_bytes;
}

void card_count_context(const struct attachment *here, struct card *card, int change)
{
    card_lock(card);
    own_share(here, card)->context_count += (uint64_t)(int64_t)change;
    card_unlock(card);
}
