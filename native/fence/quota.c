/* One quota for each card over all processes of the tenant, kept without any lock.
 *
 * To take: add to one's own slot, then sum all slots; over the limit, subtract and say no. Two
 * processes that take at once both see the other's addition or at least one of them does, so the
 * sum that a driver call is made under is never over the limit. A process that is killed at any
 * point leaves a slot that is too large at worst, and that slot is cleared when somebody needs the
 * room. The price is that two may refuse each other what one of them could have had; so a refusal
 * is only final after the dead were cleared and a few short waits of different lengths. */
#define _GNU_SOURCE
#include "fence.h"
#include <time.h>

enum { ATTEMPTS = 4, SHORTEST_WAIT_NS = 30000, WAIT_SPREAD_NS = 130000 };

/* Four at a time, as a processor adds up several chains at once. Beyond the slots used are zeros. */
static uint64_t sum(int card)
{
    const uint64_t *used = fence_region->used_bytes[card];
    uint32_t slots = __atomic_load_n(&fence_region->slots_used, __ATOMIC_SEQ_CST);
    uint64_t a = 0, b = 0, c = 0, d = 0;
    static_assert(PARTAGE_SLOTS % 4 == 0, "no slot is left over");
    for (uint32_t slot = 0; slot < slots && slot < PARTAGE_SLOTS; slot += 4) {
        a += __atomic_load_n(&used[slot], __ATOMIC_SEQ_CST);
        b += __atomic_load_n(&used[slot + 1], __ATOMIC_SEQ_CST);
        c += __atomic_load_n(&used[slot + 2], __ATOMIC_SEQ_CST);
        d += __atomic_load_n(&used[slot + 3], __ATOMIC_SEQ_CST);
    }
    return a + b + c + d;
}

uint64_t quota_limit(int card)
{
    return card < 0 ? 0 : __atomic_load_n(&fence_limits->card[card].memory_bytes, __ATOMIC_RELAXED);
}

static void note_peak(int card, uint64_t total)
{
    uint64_t *peak = &fence_region->card[card].peak_bytes;
    uint64_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (seen < total && !__atomic_compare_exchange_n(peak, &seen, total, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
}

static bool try_take(int card, int slot, uint64_t bytes)
{
    uint64_t *mine = &fence_region->used_bytes[card][slot];
    __atomic_add_fetch(mine, bytes, __ATOMIC_SEQ_CST);
    uint64_t total = sum(card);
    if (unlikely(total > quota_limit(card))) {
        __atomic_sub_fetch(mine, bytes, __ATOMIC_SEQ_CST);
        return false;
    }
    note_peak(card, total);
    return true;
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
    return attempt < ATTEMPTS || (attempt < 8 * ATTEMPTS && sum(card) + bytes <= quota_limit(card));
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
    if (slot >= 0)
        __atomic_add_fetch(&fence_region->used_bytes[card][slot], bytes, __ATOMIC_SEQ_CST);
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

/* For showing: the dead count nothing (a few milliseconds later at most). */
uint64_t quota_used(int card)
{
    if (card < 0)
        return 0;
    int mine = slot_kept();
    uint64_t total = sum(card);
    uint64_t own = mine < 0 ? 0 : __atomic_load_n(&fence_region->used_bytes[card][mine], __ATOMIC_RELAXED);
    if (total != own && !reaped_lately()) {
        slots_reap();
        total = sum(card);
    }
    return total;
}
