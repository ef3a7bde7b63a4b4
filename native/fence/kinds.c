/* What a launch costs in card time, learned from events around some of the launches.
 *
 * While a neighbour's work is on the card, the time between two events is too long by what the
 * neighbour got. So measurements are of two kinds. Clean ones, during which nobody else was seen
 * to work, are averaged: a kernel whose time varies is charged its mean. Of the others the
 * shortest of the last second counts, and only if there was no clean one for a while: being
 * disturbed can only lengthen. On a busy card a clean one is made now and then, by waiting for a
 * moment at which the neighbours are done. */
#define _GNU_SOURCE
#include "kinds.h"
#include <string.h>

enum {
    KINDS = 4096,     /* that are told apart; a power of two */
    PROBES = 16,      /* places looked at before an old kind is forgotten */
    ALWAYS = 8,       /* first launches of a kind that are all measured */
    EVERY = 16,       /* later ones: one in so many */
    LONG_NS = 500000, /* launches at least this long are measured each time */
    MEMORY = 16,      /* clean measurements that the mean remembers */
    ODD_TIMES = 3,    /* the mean: nobody was seen, but somebody may have been there */
    ODD_IN_A_ROW = 3, /* such measurements that are believed */
    WINDOW_NS = 500 * 1000 * 1000,      /* the shortest of this one and the last one counts; */
    WINDOW_LEAST = 16,                  /* longer, where measurements are rare */
    QUIET_FIRST_NS = 30 * 1000 * 1000,  /* between waits for a quiet card, at first */
    QUIET_EVERY_NS = 250 * 1000 * 1000, /* and later */
};
static const uint64_t trust_ns = 2000000000; /* a clean mean is old after that */

static struct kind kinds[KINDS];

struct kind *kind_of(const struct work *work)
{
    uint64_t mixed = ((uint64_t)work->key ^ work->shape * 0x9E3779B97F4A7C15ull);
    mixed = (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9ull;
    struct kind *rarest = NULL;
    for (int i = 0; i < PROBES; i++) {
        struct kind *kind = &kinds[(mixed + (uint64_t)i) % KINDS];
        if (kind->key == work->key && kind->shape == work->shape) {
            kind->context = work->place.context;
            return kind;
        }
        if (!rarest || kind->launches < rarest->launches)
            rarest = kind;
        if (!kind->key)
            break;
    }
    *rarest = (struct kind){.key = work->key, .shape = work->shape, .context = work->place.context};
    return rarest;
}

static uint64_t shortest(const struct kind *kind)
{
    uint64_t now = kind->shortest_ns[0], before = kind->shortest_ns[1];
    return !before || (now && now < before) ? now : before;
}

uint64_t kind_expected(const struct kind *kind)
{
    bool trusted = kind->clean && now_ns() - kind->clean_at_ns < trust_ns;
    uint64_t least = shortest(kind);
    return kind->clean && (trusted || !least) ? kind->mean_ns : least;
}

static bool is_odd(struct kind *kind, uint64_t took_ns)
{
    bool odd = kind->clean && took_ns > ODD_TIMES * kind->mean_ns;
    kind->odd = odd ? kind->odd + 1 : 0;
    return odd && kind->odd < ODD_IN_A_ROW;
}

static void learn_clean(struct kind *kind, uint64_t took_ns, uint64_t now)
{
    kind->clean = kind->odd ? 1 : kind->clean + (kind->clean < MEMORY);
    int64_t off = (int64_t)(took_ns - kind->mean_ns);
    kind->mean_ns = (uint64_t)((int64_t)kind->mean_ns + off / (int64_t)kind->clean);
    kind->clean_at_ns = now;
    kind->odd = 0;
}

static void learn_disturbed(struct kind *kind, uint64_t took_ns, uint64_t now)
{
    if (now - kind->window_began_ns > WINDOW_NS && kind->in_window >= WINDOW_LEAST) {
        kind->shortest_ns[1] = kind->shortest_ns[0];
        kind->shortest_ns[0] = 0;
        kind->window_began_ns = now;
        kind->in_window = 0;
    }
    kind->in_window++;
    if (!kind->shortest_ns[0] || took_ns < kind->shortest_ns[0])
        kind->shortest_ns[0] = took_ns;
}

void kind_learn(struct kind *kind, uint64_t took_ns, bool disturbed)
{
    uint64_t now = now_ns();
    if (disturbed || is_odd(kind, took_ns))
        learn_disturbed(kind, took_ns, now);
    else
        learn_clean(kind, took_ns, now);
}

bool kind_to_be_measured(const struct kind *kind)
{
    uint64_t number = kind->launches + 1;
    return number <= ALWAYS || number % EVERY == 0 || kind_expected(kind) >= LONG_NS;
}

bool kind_wants_quiet(struct kind *kind)
{
    uint64_t now = now_ns(), every = kind->launches < ALWAYS ? QUIET_FIRST_NS : QUIET_EVERY_NS;
    bool old = !kind->clean || now - kind->clean_at_ns > trust_ns / 2;
    bool wanted = old && now - kind->quiet_at_ns > every && kind_to_be_measured(kind);
    if (wanted)
        kind->quiet_at_ns = now;
    return wanted;
}

/* Handles come again, for other functions. */
void kinds_forget(CUcontext context)
{
    for (struct kind *kind = kinds; kind < kinds + KINDS; kind++)
        if (kind->context == context)
            *kind = (struct kind){0};
}

void kinds_forked(void) { memset(kinds, 0, sizeof kinds); }
