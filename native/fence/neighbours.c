/* The board of a card: how its tenants see each other with no daemon between them.
 *
 * Everyone writes only its own seat, and reads the others as hints: how much card time they were
 * charged, until when their queued work should last, and that they launched at all. Nothing here
 * touches anybody's guaranteed share, so a neighbour that writes nonsense can only keep others
 * from using time that is not theirs. */
#define _GNU_SOURCE
#include "fence.h"
#include <time.h>

enum {
    LOOK_EVERY_NS = 10 * 1000 * 1000,
    IDLE_AFTER_NS = 30 * 1000 * 1000,
    WANTED_FOR_NS = 25 * 1000 * 1000,
    UNKNOWN_NS = 100 * 1000 * 1000, /* how long work counts as going on whose cost is not known */
    RISE_SHIFT = 2, /* of what more is left, a quarter at each look; less is followed at once */
};

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t load(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }

static struct partage_board_seat *my_seat(int card)
{
    struct partage_board *board = fence_boards[card];
    return board ? &board->seat[fence_limits->card[card].seat % PARTAGE_SEATS] : NULL;
}

static uint32_t seats(int card)
{
    const struct partage_board *board = fence_boards[card];
    uint32_t used = board ? __atomic_load_n(&board->seats_used, __ATOMIC_RELAXED) : 0;
    return used < PARTAGE_SEATS ? used : PARTAGE_SEATS;
}

#define FOR_NEIGHBOURS(seat, card)                                                                 \
    for (struct partage_board_seat *mine_ = my_seat(card),                                         \
                                   *seat = mine_ ? fence_boards[card]->seat : NULL,                \
                                   *end_ = seat + seats(card);                                     \
         seat < end_; seat++)                                                                      \
        if (seat != mine_)

uint64_t neighbours_launches(int card)
{
    uint64_t total = 0;
    FOR_NEIGHBOURS(seat, card)
        total += load(&seat->launches);
    return total;
}

uint64_t neighbours_done_ns(int card)
{
    uint64_t last = 0;
    FOR_NEIGHBOURS(seat, card) {
        uint64_t until = load(&seat->active_until_ns);
        last = until > last ? until : last;
    }
    return last;
}

bool neighbours_active(int card, uint64_t now) { return neighbours_done_ns(card) > now; }

uint64_t tenant_launches(int card)
{
    const struct partage_board_seat *seat = my_seat(card);
    return seat ? load(&seat->launches) : 0;
}

static uint64_t charged_ns(int card)
{
    uint64_t total = 0;
    FOR_NEIGHBOURS(seat, card)
        total += load(&seat->busy_ns);
    return total;
}

struct outlook {
    uint64_t looked_ns, charged_ns;
    uint32_t left; /* in millionths */
};

/* What they leave, from what they were charged since the last look. */
static uint32_t look(const struct outlook *outlook, uint64_t charged, uint64_t now, bool idle)
{
    uint64_t elapsed = now - outlook->looked_ns;
    uint64_t worked = charged > outlook->charged_ns ? charged - outlook->charged_ns : 0;
    uint32_t left = worked < elapsed ? (uint32_t)((elapsed - worked) * PARTAGE_WHOLE / elapsed) : 0;
    if (idle)
        return PARTAGE_WHOLE;
    return left < outlook->left ? left : outlook->left + ((left - outlook->left) >> RISE_SHIFT);
}

static bool somebody_wants(int card, uint64_t now)
{
    FOR_NEIGHBOURS(seat, card)
        if (load(&seat->wanted_ns) + WANTED_FOR_NS > now)
            return true;
    return false;
}

void neighbours_want(int card, uint64_t now)
{
    struct partage_board_seat *seat = my_seat(card);
    if (seat)
        __atomic_store_n(&seat->wanted_ns, now, __ATOMIC_RELAXED);
}

/* Threads may look at once; the worst is that one of them uses the last answer. */
uint32_t neighbours_leave(int card, uint64_t now)
{
    static struct outlook outlooks[PARTAGE_CARDS];
    struct outlook *outlook = &outlooks[card];
    uint64_t looked = load(&outlook->looked_ns);
    if (!fence_boards[card])
        return 0; /* nothing can be seen, so nothing is known to be free */
    if (somebody_wants(card, now)) {
        __atomic_store_n(&outlook->left, 0, __ATOMIC_RELAXED);
        return 0;
    }
    if (now - looked > LOOK_EVERY_NS &&
        __atomic_compare_exchange_n(&outlook->looked_ns, &looked, now, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        uint64_t charged = charged_ns(card);
        bool idle = neighbours_done_ns(card) + IDLE_AFTER_NS < now;
        struct outlook before = {looked, load(&outlook->charged_ns),
                                 __atomic_load_n(&outlook->left, __ATOMIC_RELAXED)};
        __atomic_store_n(&outlook->left, look(&before, charged, now, idle), __ATOMIC_RELAXED);
        __atomic_store_n(&outlook->charged_ns, charged, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&outlook->left, __ATOMIC_RELAXED);
}

/* The card does one thing after another, or all at once and each slower: either way everything
 * queued so far is done when the sum of it is. */
void neighbours_tell(int card, uint64_t now, uint64_t cost_ns, bool known)
{
    struct partage_board_seat *seat = my_seat(card);
    if (!seat)
        return;
    if (!known)
        neighbours_want(card, now); /* how much, nobody can see yet */
    uint64_t queued_until = neighbours_done_ns(card), lasts = known ? cost_ns : UNKNOWN_NS;
    uint64_t before = load(&seat->active_until_ns), until;
    queued_until = queued_until > now ? queued_until : now;
    do
        until = (before > queued_until ? before : queued_until) + lasts;
    while (!__atomic_compare_exchange_n(&seat->active_until_ns, &before, until, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    __atomic_add_fetch(&seat->busy_ns, cost_ns, __ATOMIC_RELAXED);
    __atomic_add_fetch(&seat->launches, 1, __ATOMIC_RELAXED);
}

void neighbours_tell_correction(int card, int64_t more_ns, bool was_known)
{
    struct partage_board_seat *seat = my_seat(card);
    if (!seat)
        return;
    __atomic_add_fetch(&seat->busy_ns, (uint64_t)more_ns, __ATOMIC_RELAXED);
    more_ns -= was_known ? 0 : UNKNOWN_NS;
    __atomic_add_fetch(&seat->active_until_ns, (uint64_t)more_ns, __ATOMIC_RELAXED);
}
