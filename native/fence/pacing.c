/* Card time, paid for in advance.
 *
 * One word for each card of the tenant, shared by its processes, says until when its share is used
 * up. A launch may go when that time has come, and moves it on by its cost divided by the share: a
 * 1 ms kernel of a tenant with a fifth of the card moves it by 5 ms. No refill, no thread, nothing
 * to repair after a crash, and over any long time exactly the share. A launch that comes late may
 * make up for a short while, or waiting for one's turn on the card would cost the share too. */
#define _GNU_SOURCE
#include "fence.h"
#include <time.h>

enum {
    MAKE_UP_NS = 50 * 1000 * 1000, /* or what one launch costs, if that is more */
    LONGEST_SLEEP_NS = 2 * 1000 * 1000, /* limits may change meanwhile */
    LONGEST_QUIET_NS = 40 * 1000 * 1000, /* to wait for neighbours, for the sake of measuring */
    REST_TIMES = 5, /* as long as such a wait took, nobody waits so: there may be many kinds */
    LEAST_SHARE = PARTAGE_WHOLE / 1000,
    AHEAD_NS = 4 * 1000 * 1000, /* of work on the card, for a tenant before whom others go */
};
static const uint64_t LARGEST_DEBT_NS = 20000000000u; /* of card time */
static uint64_t rests_until_ns[PARTAGE_CARDS];

static uint32_t read32(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

static bool limited(int card)
{
    uint32_t mode = read32(&fence_limits->card[card].mode);
    return mode == PARTAGE_MODE_FIXED || mode == PARTAGE_MODE_BURST;
}

/* What the tenant may use of the card just now, in millionths. */
static uint32_t rate(int card, uint64_t now)
{
    const struct partage_limits_card *limits = &fence_limits->card[card];
    uint32_t share = larger(read32(&limits->share), LEAST_SHARE);
    if (read32(&limits->mode) != PARTAGE_MODE_BURST)
        return share;
    return larger(share, smaller(neighbours_leave(card, now), read32(&limits->ceiling)));
}

static uint64_t price(uint64_t cost_ns, uint32_t at_rate)
{
    return (uint64_t)((__uint128_t)cost_ns * PARTAGE_WHOLE / at_rate);
}

static void sleep_until(uint64_t wake_ns)
{
    struct timespec wake = {(time_t)(wake_ns / 1000000000u), (long)(wake_ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
}

/* Old debt is worth less time once the share is larger, and more once it is smaller. */
static void follow_share(int card, uint64_t now)
{
    struct partage_region_card *seen = &fence_region->card[card];
    uint64_t share = larger(read32(&fence_limits->card[card].share), LEAST_SHARE);
    uint64_t before = __atomic_load_n(&seen->paid_share, __ATOMIC_RELAXED);
    if (likely(before == share) || !__atomic_compare_exchange_n(&seen->paid_share, &before, share,
                                                                false, __ATOMIC_RELAXED,
                                                                __ATOMIC_RELAXED))
        return;
    uint64_t paid = __atomic_load_n(&seen->paid_until_ns, __ATOMIC_RELAXED), scaled;
    do
        scaled = now + (uint64_t)((__uint128_t)(paid - now) * before / share);
    while (before && paid > now &&
           !__atomic_compare_exchange_n(&seen->paid_until_ns, &paid, scaled, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
}

/* A tenant before whom others go waits while they have work. It keeps little work on the card, since
 * what is there when they come cannot be taken back. */
static uint64_t after_others(int card, uint64_t now)
{
    uint32_t seats = read32(&fence_limits->card[card].yields_to);
    if (likely(!seats))
        return now;
    uint64_t others = neighbours_first(card, seats, now), own = tenant_queue(card, now);
    uint64_t room = own > AHEAD_NS ? now + own - AHEAD_NS : now;
    return others > room ? others : room;
}

/* Until when a share is used up. */
static uint64_t paid_up(uint64_t *paid_until, uint32_t share, uint64_t now)
{
    uint64_t paid = __atomic_load_n(paid_until, __ATOMIC_RELAXED);
    uint64_t furthest = now + price(LARGEST_DEBT_NS, larger(share, LEAST_SHARE));
    if (unlikely(paid > furthest)) /* of another boot, or written by hand */
        __atomic_compare_exchange_n(paid_until, &paid, furthest, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
    return paid < furthest ? paid : furthest;
}

/* The share of this process's group, within that of the tenant; 0: it has none of its own. */
static uint32_t group_share(int card)
{
    uint32_t share = fence_group_limits ? fence_group_limits->card[card].share : 0;
    return share ? larger(share, LEAST_SHARE) : 0;
}

/* When the launch may go, as far as is known; not later than `now` if it may go now. */
static uint64_t turn(int card, uint64_t now)
{
    if (read32(&fence_limits->card[card].paused))
        return now + LONGEST_SLEEP_NS;
    uint64_t after = after_others(card, now);
    if (after > now)
        return after;
    if (!limited(card))
        return now;
    uint64_t paid = paid_up(&fence_region->card[card].paid_until_ns,
                            read32(&fence_limits->card[card].share), now);
    uint32_t of_group = group_share(card);
    uint64_t group_paid =
        of_group ? paid_up(&fence_group_region->card[card].paid_until_ns, of_group, now) : 0;
    return group_paid > paid ? group_paid : paid;
}

/* Two of a group may come to the same turn: then both pay, and the next one waits for both. */
static void pay_for_group(int card, const struct work *work, uint64_t now, uint64_t quiet_ns)
{
    uint32_t share = group_share(card);
    if (likely(!share))
        return;
    uint64_t own_price = price(work->charged_ns, share), from;
    uint64_t make_up = (own_price > MAKE_UP_NS ? own_price : MAKE_UP_NS) + quiet_ns;
    uint64_t *paid_until = &fence_group_region->card[card].paid_until_ns;
    uint64_t paid = __atomic_load_n(paid_until, __ATOMIC_RELAXED);
    do
        from = paid + make_up > now ? paid : now - make_up;
    while (!__atomic_compare_exchange_n(paid_until, &paid, from + own_price, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
}

/* Pays; false: another thread or process was faster, and it is no longer our turn. What was spent
 * on waiting for a quiet card may be made up for. */
static bool pay(struct work *work, uint64_t now, uint64_t quiet_ns)
{
    int card = work->place.card;
    uint64_t *paid_until = &fence_region->card[card].paid_until_ns;
    uint64_t paid = __atomic_load_n(paid_until, __ATOMIC_RELAXED);
    work->rate = rate(card, now);
    uint64_t own_price = price(work->charged_ns, work->rate);
    uint64_t make_up = (own_price > MAKE_UP_NS ? own_price : MAKE_UP_NS) + quiet_ns;
    if (!limited(card))
        return true;
    if (paid > now)
        return false;
    uint64_t from = paid + make_up > now ? paid : now - make_up;
    if (!__atomic_compare_exchange_n(paid_until, &paid, from + own_price, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return false;
    pay_for_group(card, work, now, quiet_ns);
    return true;
}

static void wait_until(uint64_t wake_ns, uint64_t now)
{
    sleep_until(wake_ns < now + LONGEST_SLEEP_NS ? wake_ns : now + LONGEST_SLEEP_NS);
}

/* Returns how long it took for the neighbours to be done, or gave up. */
static uint64_t wait_for_quiet(int card)
{
    uint64_t came = now_ns(), now = came, done;
    while ((done = neighbours_now(card).done_ns) > now && now - came < LONGEST_QUIET_NS) {
        neighbours_want(card, now);
        wait_until(done, now);
        now = now_ns();
    }
    __atomic_store_n(&rests_until_ns[card], now + REST_TIMES * (now - came), __ATOMIC_RELAXED);
    return now - came;
}

/* Returns the time at which the launch goes. */
static uint64_t wait_for_turn(struct work *work)
{
    int card = work->place.card;
    uint64_t came = now_ns(), now = came, at, quiet_ns = 0;
    bool want_quiet = now >= __atomic_load_n(&rests_until_ns[card], __ATOMIC_RELAXED) &&
                      costs_want_quiet(work);
    for (;;) {
        follow_share(card, now);
        if ((at = turn(card, now)) > now) {
            wait_until(at, now);
            costs_harvest(); /* what was measured meanwhile may shorten the wait */
        } else if (want_quiet) {
            quiet_ns = wait_for_quiet(card), want_quiet = false;
        } else {
            costs_price(work);
            if (pay(work, now, quiet_ns))
                break;
        }
        now = now_ns();
    }
    if (now > came + 1000) {
        struct partage_region_card *seen = &fence_region->card[card];
        __atomic_add_fetch(&seen->throttled, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&seen->throttled_ns, now - came, __ATOMIC_RELAXED);
    }
    return now;
}

static void move_paid(uint64_t *paid_until, int64_t more_ns, uint32_t at_rate)
{
    uint64_t moved = price((uint64_t)(more_ns < 0 ? -more_ns : more_ns), at_rate);
    uint64_t paid = __atomic_load_n(paid_until, __ATOMIC_RELAXED), corrected;
    do
        corrected = more_ns > 0 ? paid + moved : paid > moved ? paid - moved : 0;
    while (!__atomic_compare_exchange_n(paid_until, &paid, corrected, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
}

int64_t pace_correct(int card, int64_t more_ns, bool was_known, uint32_t at_rate)
{
    struct partage_region_card *seen = &fence_region->card[card];
    uint32_t of_group = group_share(card);
    if (limited(card))
        move_paid(&seen->paid_until_ns, more_ns, at_rate);
    if (unlikely(of_group && limited(card)))
        move_paid(&fence_group_region->card[card].paid_until_ns, more_ns, of_group);
    __atomic_add_fetch(&seen->busy_ns, (uint64_t)more_ns, __ATOMIC_RELAXED);
    return neighbours_tell_correction(card, more_ns, was_known);
}

/* Counted: on a card of the tenant that has a mode, is paused or yields, and not merely being recorded. */
static bool counted(struct work *work)
{
    work->place = place_of(work->stream);
    if (!work->place.context || work->place.card < 0)
        return false;
    const struct partage_limits_card *limits = &fence_limits->card[work->place.card];
    return (read32(&limits->mode) || read32(&limits->paused) || read32(&limits->yields_to)) &&
           !stream_capturing(work->stream, work->per_thread);
}

CUresult pace_before(struct work *work)
{
    int state = fence_enter();
    work->place.card = NOT_GRANTED;
    if (unlikely(state != FENCE_HELD))
        return state == FENCE_OPEN ? CUDA_SUCCESS : fence_refusal(state);
    CUresult loaded = library_launched(work);
    if (unlikely(loaded))
        return loaded;
    if (!read32(&fence_limits->gate) || !counted(work)) {
        work->place.card = NOT_GRANTED;
        return CUDA_SUCCESS;
    }
    int card = work->place.card;
    struct calm calm = calm_begin();
    work->shape ^= (uint64_t)card << 58; /* cards may differ */
    costs_harvest();
    costs_await(work);
    uint64_t now = wait_for_turn(work);
    work->told_ns = neighbours_tell(card, now, work->charged_ns, work->known);
    costs_begin(work, now);
    __atomic_add_fetch(&fence_region->card[card].launches, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&fence_region->card[card].busy_ns, work->charged_ns, __ATOMIC_RELAXED);
    calm_end(calm);
    return CUDA_SUCCESS;
}

void pace_after(struct work *work, CUresult result)
{
    if (work->place.card < 0)
        return;
    struct calm calm = calm_begin();
    costs_end(work, result);
    if (result)
        pace_correct(work->place.card, -(int64_t)work->charged_ns, work->known, work->rate);
    calm_end(calm);
}
