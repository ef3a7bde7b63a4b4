/* The other tenants of a card, as they can be seen with no daemon between us.
 *
 * Each tenant writes one small file for each of its cards, its seat, and reads those of the others
 * as hints: how much card time they were charged, until when their queued work should last, that
 * they launched at all. Nothing here touches anybody's guaranteed share, so a neighbour that writes
 * nonsense can only keep others from using time that is not theirs. Others' files are opened, read
 * and closed, never mapped and never kept: their owner may cut them short, and the program may close
 * our descriptors. That costs a microsecond or two for each neighbour, so a look is used for a
 * while. */
#define _GNU_SOURCE
#include "fence.h"
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_LASTS_NS = 500 * 1000,         /* for what may be a little old */
    RECKON_EVERY_NS = 10 * 1000 * 1000, /* what the neighbours leave */
    IDLE_AFTER_NS = 30 * 1000 * 1000,
    WANTED_FOR_NS = 25 * 1000 * 1000,
    UNKNOWN_NS = 100 * 1000 * 1000, /* how long work counts as going on whose cost is not known */
    FURTHEST_NS = 2000 * 1000 * 1000,
    TRY_ALL_EVERY_NS = 1000 * 1000 * 1000,
    TRY_NEXT_EVERY_NS = 1000 * 1000, /* a seat is made before its tenant's first program is started */
    GRACE_NS = 100 * 1000 * 1000, /* after the work of those who go first */
    WANTS_NOW_NS = 5 * 1000 * 1000, /* since it last said so */
    RISE_SHIFT = 2, /* of what more is left, a quarter each time; less is followed at once */
};

/* All neighbours together. */
struct view {
    uint64_t looked_ns, charged_ns, queued_ns, launches, done_ns, wanted_ns;
};

struct outlook {
    uint64_t reckoned_ns, charged_ns;
    uint32_t left; /* of the card, in millionths */
};

/* Those who go first, all together. */
struct firsts {
    uint64_t looked_ns, launches, worked_ns; /* when they were last known to work */
};

static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static struct view views[PARTAGE_CARDS];
static struct outlook outlooks[PARTAGE_CARDS];
static struct firsts firsts[PARTAGE_CARDS];
static uint64_t tried_all_ns[PARTAGE_CARDS], tried_next_ns[PARTAGE_CARDS];
static unsigned known_seats[PARTAGE_CARDS]; /* none that was ever seen is at or above this */
static uint64_t told_ns[PARTAGE_CARDS], finished_ns[PARTAGE_CARDS]; /* of this process */

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- looking ------------------------------------------------------------------------------- */

static bool read_seat(int card, unsigned number, struct partage_seat *seat)
{
    int file = fence_open_seat(card, number, O_RDONLY);
    if (file < 0)
        return false;
    bool whole = pread(file, seat, sizeof *seat, 0) == sizeof *seat;
    close(file);
    return whole && seat->magic == PARTAGE_SEAT_MAGIC && seat->version == PARTAGE_VERSION;
}

/* Work that is queued: charged and not known to be done, but none after the time at which it should
 * have been, since a tenant that has stopped launching does not learn any more what is done. */
static uint64_t queued(const struct partage_seat *seat, uint64_t now)
{
    uint64_t charged = __atomic_load_n(&seat->charged_ns, __ATOMIC_RELAXED);
    uint64_t finished = __atomic_load_n(&seat->finished_ns, __ATOMIC_RELAXED);
    uint64_t until = __atomic_load_n(&seat->active_until_ns, __ATOMIC_RELAXED);
    uint64_t open = charged > finished ? charged - finished : 0, left = until > now ? until - now : 0;
    if (left > FURTHEST_NS)
        return 0; /* nobody can know that */
    return open < left ? open : left;
}

static void add(struct view *view, const struct partage_seat *seat)
{
    uint64_t queue = queued(seat, view->looked_ns);
    view->charged_ns += seat->charged_ns;
    view->queued_ns += queue;
    view->launches += seat->launches;
    view->done_ns = later(view->done_ns, queue ? view->looked_ns + queue : seat->active_until_ns);
    view->wanted_ns = later(view->wanted_ns, seat->wanted_ns);
}

static bool is_due(uint64_t *last_ns, uint64_t now, uint64_t every_ns)
{
    bool due = now - *last_ns > every_ns;
    *last_ns = due ? now : *last_ns;
    return due;
}

/* The node side gives away the lowest free seat, so a new one is rarely more than one further than
 * those known, one's own among them; all are tried at first and once in a while. */
static struct view look(int card)
{
    struct view view = {.looked_ns = now_ns()};
    struct partage_seat seat;
    bool all = is_due(&tried_all_ns[card], view.looked_ns, TRY_ALL_EVERY_NS);
    bool next = is_due(&tried_next_ns[card], view.looked_ns, TRY_NEXT_EVERY_NS);
    unsigned end = all ? PARTAGE_SEATS : known_seats[card] + next;
    for (unsigned number = 0; number < PARTAGE_SEATS && number < end; number++) {
        bool own = number == fence_limits->card[card].seat;
        if (!own && !read_seat(card, number, &seat))
            continue;
        known_seats[card] = (unsigned)later(known_seats[card], number + 1);
        if (!own)
            add(&view, &seat);
    }
    return view;
}

static struct view seen(int card, uint64_t may_be_old_ns)
{
    if (!fence_seats[card])
        return (struct view){0};
    pthread_mutex_lock(&looking);
    if (now_ns() - views[card].looked_ns > may_be_old_ns)
        views[card] = look(card);
    struct view view = views[card];
    pthread_mutex_unlock(&looking);
    return view;
}

void neighbours_forked(void)
{
    pthread_mutex_init(&looking, NULL);
    memset(told_ns, 0, sizeof told_ns);
    memset(finished_ns, 0, sizeof finished_ns);
}

struct neighbours neighbours_now(int card)
{
    struct view view = seen(card, 0);
    uint64_t done = view.queued_ns ? view.looked_ns + view.queued_ns : 0;
    return (struct neighbours){.launches = view.launches, .done_ns = done};
}

uint64_t tenant_launches(int card)
{
    const struct partage_seat *seat = fence_seats[card];
    return seat ? __atomic_load_n(&seat->launches, __ATOMIC_RELAXED) : 0;
}

/* ---- what they leave ---------------------------------------------------------------------------- */

/* From what they were charged since the last time. */
static uint32_t reckon(const struct outlook *before, const struct view *view)
{
    uint64_t elapsed = view->looked_ns - before->reckoned_ns;
    uint64_t worked = view->charged_ns > before->charged_ns ? view->charged_ns - before->charged_ns : 0;
    uint32_t left = worked < elapsed ? (uint32_t)((elapsed - worked) * PARTAGE_WHOLE / elapsed) : 0;
    if (view->looked_ns - IDLE_AFTER_NS > view->done_ns)
        return PARTAGE_WHOLE;
    return left < before->left ? left : before->left + ((left - before->left) >> RISE_SHIFT);
}

uint32_t neighbours_leave(int card, uint64_t now)
{
    if (!fence_seats[card])
        return 0; /* nothing can be seen, so nothing is known to be free */
    struct view view = seen(card, LOOK_LASTS_NS);
    struct outlook *outlook = &outlooks[card];
    pthread_mutex_lock(&looking);
    if (view.wanted_ns + WANTED_FOR_NS > now)
        outlook->left = 0;
    else if (view.looked_ns - outlook->reckoned_ns > RECKON_EVERY_NS)
        *outlook = (struct outlook){view.looked_ns, view.charged_ns, reckon(outlook, &view)};
    uint32_t left = outlook->left;
    pthread_mutex_unlock(&looking);
    return left;
}

/* ---- who goes first ------------------------------------------------------------------------------- */

uint64_t tenant_queue(int card, uint64_t now)
{
    return fence_seats[card] ? queued(fence_seats[card], now) : 0;
}

static bool goes_first(uint32_t seats, unsigned number)
{
    return seats >> (number < PARTAGE_FIRST_SEATS ? number : PARTAGE_FIRST_SEATS) & 1;
}

/* When a tenant worked last, not later than now. One that wants a quiet card is about to work. What
 * is done earlier than it should have been was seen to go on by an earlier look. */
static uint64_t worked(const struct partage_seat *seat, uint64_t now)
{
    if (queued(seat, now) || (seat->wanted_ns <= now && now - seat->wanted_ns < WANTS_NOW_NS))
        return now;
    return seat->active_until_ns <= now ? seat->active_until_ns : 0;
}

static void look_at_firsts(int card, uint32_t seats, uint64_t now)
{
    struct firsts *known = &firsts[card], seen = {.looked_ns = now};
    struct partage_seat seat;
    for (unsigned number = 0; number < PARTAGE_SEATS; number++) {
        if (!goes_first(seats, number) || number == fence_limits->card[card].seat ||
            !read_seat(card, number, &seat))
            continue;
        seen.launches += seat.launches;
        seen.worked_ns = later(seen.worked_ns, worked(&seat, now));
    }
    if (seen.launches != known->launches && now - known->looked_ns < GRACE_NS)
        seen.worked_ns = now;
    seen.worked_ns = later(seen.worked_ns, known->worked_ns);
    *known = seen;
}

uint64_t neighbours_first(int card, uint32_t seats, uint64_t now)
{
    pthread_mutex_lock(&looking);
    if (now - firsts[card].looked_ns > LOOK_LASTS_NS)
        look_at_firsts(card, seats, now);
    uint64_t worked_ns = firsts[card].worked_ns;
    pthread_mutex_unlock(&looking);
    return worked_ns ? worked_ns + GRACE_NS : now;
}

/* ---- telling --------------------------------------------------------------------------------------- */

void neighbours_want(int card, uint64_t now)
{
    if (fence_seats[card])
        __atomic_store_n(&fence_seats[card]->wanted_ns, now, __ATOMIC_RELAXED);
}

/* The card does one thing after another, or all at once and each slower: either way everything
 * queued so far is done when the sum of it is. Returns what this process has told so far. */
uint64_t neighbours_tell(int card, uint64_t now, uint64_t cost_ns, bool known)
{
    struct partage_seat *seat = fence_seats[card];
    if (!seat)
        return 0;
    if (!known) { /* how much, nobody can see yet */
        neighbours_want(card, now);
        cost_ns = UNKNOWN_NS;
    }
    uint64_t until = now + cost_ns + queued(seat, now) + seen(card, LOOK_LASTS_NS).queued_ns;
    __atomic_add_fetch(&seat->charged_ns, cost_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&seat->active_until_ns, until, __ATOMIC_RELAXED);
    __atomic_add_fetch(&seat->launches, 1, __ATOMIC_RELAXED);
    return __atomic_add_fetch(&told_ns[card], cost_ns, __ATOMIC_RELAXED);
}

/* Returns by how much that changes what was told. */
int64_t neighbours_tell_correction(int card, int64_t more_ns, bool was_known)
{
    more_ns -= was_known ? 0 : UNKNOWN_NS;
    if (fence_seats[card]) {
        __atomic_add_fetch(&fence_seats[card]->charged_ns, (uint64_t)more_ns, __ATOMIC_RELAXED);
        __atomic_add_fetch(&told_ns[card], (uint64_t)more_ns, __ATOMIC_RELAXED);
    }
    return more_ns;
}

void neighbours_tell_finished(int card, uint64_t up_to_ns)
{
    uint64_t before = __atomic_load_n(&finished_ns[card], __ATOMIC_RELAXED);
    uint64_t told = __atomic_load_n(&told_ns[card], __ATOMIC_RELAXED);
    up_to_ns = (int64_t)(up_to_ns - told) > 0 ? told : up_to_ns; /* earlier ones were corrected */
    int64_t more = (int64_t)(up_to_ns - before);
    if (!fence_seats[card] || more <= 0)
        return;
    if (__atomic_compare_exchange_n(&finished_ns[card], &before, up_to_ns, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        __atomic_add_fetch(&fence_seats[card]->finished_ns, (uint64_t)more, __ATOMIC_RELAXED);
}
