/* One quota for each card over all processes of the tenant, kept without any lock; and a smaller one
 * over those of a group, for tenants that have groups.
 *
 * To take: add to one's own slot, then sum all slots; over the limit, subtract and say no. Two
 * processes that take at once both see the other's addition or at least one of them does, so the
 * sum that a driver call is made under is never over the limit. A process that is killed at any
 * point leaves a slot that is too large at worst, and that slot is cleared when somebody needs the
 * room. The price is that two may refuse each other what one of them could have had; so a refusal
 * is only final after the dead were cleared and a few short waits of different lengths.
 *
 * A sum over many slots takes its time, so a thread remembers what the others had, and the number
 * of `additions` that its sum was made under. Whoever has added to a slot raises that number before
 * it sums. While the number stands, the others have what they had or less; and whoever has added
 * since then has yet to sum, and will see the addition of this process.
 *
 * The quota of a group is a second sum over the same slots, those of its number, under the same
 * rules: a process is in its group before it has anything. */
#define _GNU_SOURCE
#include "fence.h"
#include <time.h>

enum { ATTEMPTS = 4, SHORTEST_WAIT_NS = 30000, WAIT_SPREAD_NS = 130000, REMEMBERED = 4 };

/* Of the few cards that a thread works with: a library that a program opens while it runs has little
 * room for variables of threads, and a program has that room once for all that it opens. */
static __thread struct memory {
    int16_t card;
    int16_t slot; /* which is not among the others */
    uint64_t additions;
    struct amounts {
        uint64_t tenant_bytes, group_bytes;
    } others, totals; /* totals: when something was taken, if one is above its peak; else 0 */
} remembered[REMEMBERED];

_Static_assert(PARTAGE_SLOTS <= INT16_MAX, "a slot's number fits");

static uint64_t sum(const uint64_t *used, uint32_t begin, uint32_t end)
{
    uint64_t total = 0;
    for (uint32_t slot = begin; slot < end; slot++)
        total += __atomic_load_n(&used[slot], __ATOMIC_SEQ_CST);
    return total;
}

APART static uint64_t sum_of_group(const uint64_t *used, uint32_t end, int mine)
{
    uint64_t total = 0;
    for (uint32_t slot = 0; slot < end; slot++)
        if ((int)slot != mine && __atomic_load_n(&fence_region->slot[slot].group, __ATOMIC_SEQ_CST) ==
                                     fence_group_limits->number)
            total += __atomic_load_n(&used[slot], __ATOMIC_SEQ_CST);
    return total;
}

/* Of all slots but one; -1: of all. */
static struct amounts sum_without(int card, int mine)
{
    const uint64_t *used = fence_region->used_bytes[card];
    uint32_t slots = __atomic_load_n(&fence_region->slots_used, __ATOMIC_SEQ_CST);
    uint32_t end = slots < PARTAGE_SLOTS ? slots : PARTAGE_SLOTS;
    uint64_t tenant = mine < 0 ? sum(used, 0, end)
                               : sum(used, 0, (uint32_t)mine) + sum(used, (uint32_t)mine + 1, end);
    return (struct amounts){tenant, fence_group_limits ? sum_of_group(used, end, mine) : 0};
}

static struct amounts plus(struct amounts amounts, uint64_t bytes)
{
    return (struct amounts){amounts.tenant_bytes + bytes,
                            fence_group_limits ? amounts.group_bytes + bytes : 0};
}

static bool within(struct amounts amounts, struct amounts most)
{
    return amounts.tenant_bytes <= most.tenant_bytes && amounts.group_bytes <= most.group_bytes;
}

static struct amounts limits_of(int card)
{
    return (struct amounts){
        __atomic_load_n(&fence_limits->card[card].memory_bytes, __ATOMIC_RELAXED),
        fence_group_limits ? fence_group_limits->card[card].memory_bytes : 0,
    };
}

static struct amounts peaks_of(int card)
{
    return (struct amounts){
        __atomic_load_n(&fence_region->card[card].peak_bytes, __ATOMIC_RELAXED),
        fence_group_region
            ? __atomic_load_n(&fence_group_region->card[card].peak_bytes, __ATOMIC_RELAXED)
            : 0,
    };
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t quota_added(int card)
{
    return __atomic_add_fetch(&fence_region->additions[card], 1, __ATOMIC_SEQ_CST);
}

uint64_t quota_limit(int card)
{
    if (card < 0)
        return 0;
    struct amounts limits = limits_of(card);
    return fence_group_limits ? smaller(limits.tenant_bytes, limits.group_bytes) : limits.tenant_bytes;
}

void quota_refused(int card)
{
    __atomic_add_fetch(&fence_region->card[card].refused, 1, __ATOMIC_RELAXED);
    if (fence_group_region)
        __atomic_add_fetch(&fence_group_region->card[card].refused, 1, __ATOMIC_RELAXED);
}

static void raise_to(uint64_t *peak, uint64_t total)
{
    uint64_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (seen < total && !__atomic_compare_exchange_n(peak, &seen, total, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
}

static void note_peak(int card, struct amounts totals)
{
    raise_to(&fence_region->card[card].peak_bytes, totals.tenant_bytes);
    if (fence_group_region)
        raise_to(&fence_group_region->card[card].peak_bytes, totals.group_bytes);
}

/* A program that tries sizes until one fits has not had those that the driver refused; and a sum of
 * now may count what somebody else is about to be refused. So the peak is not above either. */
APART static void note_taken(struct memory *memory)
{
    struct amounts now = sum_without(memory->card, -1), then = memory->totals;
    memory->totals = (struct amounts){0};
    note_peak(memory->card, (struct amounts){smaller(now.tenant_bytes, then.tenant_bytes),
                                             smaller(now.group_bytes, then.group_bytes)});
}

static struct memory *memory_of(int card)
{
    struct memory *memory = &remembered[card % REMEMBERED];
    if (unlikely(memory->card != card)) {
        if (memory->totals.tenant_bytes)
            note_taken(memory);
        *memory = (struct memory){.card = (int16_t)card, .slot = -1};
    }
    return memory;
}

/* Within the peak too: the others may have less by now, and a peak is not noted by guess. */
static bool fits_as_remembered(const struct memory *memory, int card, int slot, uint64_t own_bytes)
{
    struct amounts most = plus(memory->others, own_bytes);
    return memory->slot == slot &&
           memory->additions ==
               __atomic_load_n(&fence_region->additions[card], __ATOMIC_SEQ_CST) &&
           within(most, limits_of(card)) && within(most, peaks_of(card));
}

static bool fits(struct memory *memory, int card, int slot, uint64_t own_bytes)
{
    memory->slot = (int16_t)slot;
    memory->additions = quota_added(card);
    memory->others = sum_without(card, slot);
    struct amounts totals = plus(memory->others, own_bytes);
    if (unlikely(!within(totals, limits_of(card))))
        return false;
    memory->totals = within(totals, peaks_of(card)) ? (struct amounts){0} : totals;
    return true;
}

static bool try_take(int card, int slot, uint64_t bytes)
{
    struct memory *memory = memory_of(card);
    uint64_t *mine = &fence_region->used_bytes[card][slot];
    uint64_t own_bytes = __atomic_add_fetch(mine, bytes, __ATOMIC_SEQ_CST);
    if (likely(fits_as_remembered(memory, card, slot, own_bytes)) ||
        fits(memory, card, slot, own_bytes))
        return true;
    __atomic_sub_fetch(mine, bytes, __ATOMIC_SEQ_CST);
    return false;
}

static void wait_a_little(int attempt, int slot)
{
    uint32_t mixed = ((uint32_t)slot * 2654435761u) ^ ((uint32_t)attempt * 40503u);
    struct timespec pause = {0, SHORTEST_WAIT_NS + mixed % WAIT_SPREAD_NS};
    struct calm calm = calm_begin();
    nanosleep(&pause, NULL);
    calm_end(calm);
}

/* Those who were refused with us have given back what they had taken: is there room now? */
static bool worth_another(int card, uint64_t bytes, int attempt)
{
    return attempt < ATTEMPTS ||
           (attempt < 8 * ATTEMPTS && within(plus(sum_without(card, -1), bytes), limits_of(card)));
}

APART static bool take_after_others(int card, uint64_t bytes)
{
    int slot = slot_mine();
    if (slot < 0)
        return false;
    slots_reap();
    for (int attempt = 1; worth_another(card, bytes, attempt); attempt++) {
        if ((slot = slot_mine()) >= 0 && try_take(card, slot, bytes))
            return true;
        wait_a_little(attempt, slot);
    }
    return false;
}

void quota_taken(int card)
{
    struct memory *memory = card < 0 ? NULL : &remembered[card % REMEMBERED];
    if (unlikely(memory && memory->card == card && memory->totals.tenant_bytes))
        note_taken(memory);
}

bool quota_take(int card, uint64_t bytes)
{
    if (card < 0 || bytes > quota_limit(card))
        return false;
    int slot = slot_mine();
    return likely(slot >= 0 && try_take(card, slot, bytes)) || take_after_others(card, bytes);
}

void quota_give(int card, uint64_t bytes)
{
    if (card < 0 || !bytes)
        return;
    int slot = slot_kept(); /* lost: all will be counted again, and this is no longer part of it */
    if (likely(slot >= 0))
        __atomic_sub_fetch(&fence_region->used_bytes[card][slot], bytes, __ATOMIC_SEQ_CST);
}

void quota_give_of(uint64_t owner, int card, uint64_t bytes)
{
    if (likely(owner == slot_owner()))
        quota_give(card, bytes);
}

void quota_add(int card, uint64_t bytes)
{
    int slot = slot_kept();
    if (card < 0 || slot < 0)
        return;
    __atomic_add_fetch(&fence_region->used_bytes[card][slot], bytes, __ATOMIC_SEQ_CST);
    quota_added(card);
    note_peak(card, sum_without(card, -1));
}

/* Asking the kernel about every slot costs more than a program that polls should pay each time. */
static bool reaped_lately(void)
{
    static uint64_t last_tick;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    uint64_t tick = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return __atomic_exchange_n(&last_tick, tick, __ATOMIC_RELAXED) == tick;
}

/* What others of the tenant have may leave a group less than its own quota does: that counts as used. */
static uint64_t as_shown(struct amounts used, struct amounts limits)
{
    if (!fence_group_limits)
        return used.tenant_bytes;
    uint64_t limit = smaller(limits.tenant_bytes, limits.group_bytes);
    uint64_t left = limits.tenant_bytes > used.tenant_bytes ? limits.tenant_bytes - used.tenant_bytes : 0;
    uint64_t gone = limit > left ? limit - left : 0;
    return gone > used.group_bytes ? gone : used.group_bytes;
}

/* For showing: the dead count nothing (a few milliseconds later at most). */
uint64_t quota_used(int card)
{
    if (card < 0)
        return 0;
    int mine = slot_kept();
    struct amounts others = sum_without(card, mine);
    uint64_t own = mine < 0 ? 0 : __atomic_load_n(&fence_region->used_bytes[card][mine], __ATOMIC_RELAXED);
    if (others.tenant_bytes && !reaped_lately()) {
        slots_reap();
        others = sum_without(card, mine);
    }
    return as_shown(plus(others, own), limits_of(card));
}
