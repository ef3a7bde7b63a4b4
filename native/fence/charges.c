/* One allocation: take from the quota, ask the driver, write down or give back.
 *
 * Taken before the driver is asked and given back after it has freed, so what the driver holds for
 * the tenant is never more than what is counted. */
#include "fence.h"

APART static CUresult refuse(int card)
{
    int state = fence_enter(); /* without a slot there is no fence any more */
    if (unlikely(state != FENCE_HELD))
        return fence_refusal(state);
    if (card < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    quota_refused(card);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Pools keep freed memory; before anybody is refused, they give up what they do not use. */
APART static bool take_from_pools(int card, uint64_t bytes)
{
    if (card < 0 || bytes > quota_limit(card))
        return false;
    pools_press(card);
    exports_refresh();
    return quota_take(card, bytes);
}

static bool take(int card, uint64_t bytes)
{
    return likely(quota_take(card, bytes)) || take_from_pools(card, bytes);
}

CUresult charge_begin_on(struct charge *charge, struct place place, uint64_t bytes)
{
    int state = fence_enter();
    charge->place = place;
    charge->bytes = round_up(bytes, GRAIN_BYTES);
    charge->counted = state == FENCE_HELD && take(place.card, charge->bytes);
    charge->owner = slot_owner();
    if (likely(charge->counted || state == FENCE_OPEN))
        return CUDA_SUCCESS;
    return state == FENCE_HELD ? refuse(place.card) : fence_refusal(state);
}

CUresult charge_begin(struct charge *charge, uint64_t bytes)
{
    int state = fence_enter();
    charge->counted = false;
    if (unlikely(state != FENCE_HELD))
        return state == FENCE_OPEN ? CUDA_SUCCESS : fence_refusal(state);
    struct place place = place_current();
    if (!place.context || !bytes)
        return CUDA_SUCCESS; /* the driver has its own answer to that */
    return charge_begin_on(charge, place, bytes);
}

void charge_drop(struct charge *charge)
{
    if (charge->counted)
        quota_give_of(charge->owner, charge->place.card, charge->bytes);
    charge->counted = false;
}

CUresult charge_end(struct charge *charge, CUresult result, enum ledger_kind kind, uint64_t key)
{
    if (!charge->counted)
        return result;
    if (unlikely(result)) {
        charge_drop(charge);
        return result;
    }
    struct ledger_entry entry = {.key = key,
                                 .bytes = charge->bytes,
                                 .context = charge->place.context,
                                 .card = (int16_t)charge->place.card,
                                 .kind = kind,
                                 .count = 1};
    struct ledger_entry stale;
    if (unlikely(ledger_put(&entry, &stale))) /* or it stays counted until the process ends */
        quota_give_of(charge->owner, stale.card, stale.bytes); /* the key is new, so that has ended unseen */
    if (unlikely(charge->owner != slot_owner()))
        quota_add(entry.card, entry.bytes); /* all was counted again before this was written down */
    quota_taken(entry.card);
    return result;
}

bool charge_settle(struct charge *charge, uint64_t bytes)
{
    if (!charge->counted)
        return true;
    bytes = round_up(bytes, GRAIN_BYTES);
    if (bytes > charge->bytes && !take(charge->place.card, bytes - charge->bytes))
        return refuse(charge->place.card), false;
    if (bytes < charge->bytes)
        quota_give(charge->place.card, charge->bytes - bytes);
    charge->bytes = bytes;
    return true;
}

/* A free does not say whether its memory came from a pool, or from a graph. */
bool take_out(enum ledger_kind kind, uint64_t key, struct ledger_entry *entry)
{
    return ledger_remove(kind, key, entry) ||
           (kind == LEDGER_MEMORY && pools_used() &&
            (ledger_remove(LEDGER_POOLED, key, entry) || ledger_remove(LEDGER_KEPT, key, entry)));
}

APART static void given_back_to_pool(const struct ledger_entry *entry)
{
    if (entry->kind == LEDGER_POOLED && entry->count == WITHOUT_POOL)
        physical_drop(entry->owner, 1);
    else
        pools_refresh();
}

void given_back(const struct ledger_entry *entry, CUresult result, uint64_t owner)
{
    if (unlikely(result))
        ledger_add(entry); /* the driver did not free it, so it is still ours */
    else if (unlikely(entry->kind == LEDGER_POOLED || entry->kind == LEDGER_KEPT))
        given_back_to_pool(entry);
    else
        quota_give_of(owner, entry->card, entry->bytes);
}
