/* What a launch costs in card time, learned from events around some of the launches.
 *
 * While a neighbour's work is on the card, the time between two events is too long by what the
 * neighbour got. So measurements are of two kinds. Clean ones, during which nobody else was seen
 * to work, are averaged: a kernel whose time varies is charged its mean. Of the others the
 * shortest of the last second counts, and only if there was no clean one for a while: being
 * disturbed can only lengthen. On a busy card a clean one is made now and then, by waiting for a
 * moment at which the neighbours are done. */
#define _GNU_SOURCE
#include "fence.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    KINDS = 4096,      /* of launches that are told apart; a power of two */
    PROBES = 16,       /* places looked at before an old kind is forgotten */
    SAMPLES = 64,      /* measurements under way */
    ALWAYS = 8,        /* first launches of a kind that are all measured */
    EVERY = 16,        /* later ones: one in so many */
    LONG_NS = 500000,  /* launches at least this long are measured each time */
    MEMORY = 16,       /* clean measurements that the mean remembers */
    ODD_TIMES = 3,     /* the mean: nobody was seen, but somebody may have been there */
    ODD_IN_A_ROW = 3,  /* such measurements that are believed */
    FIRST_WAIT_NS = 250 * 1000 * 1000, /* for the first measurement of a kind */
    FIRST_LOOK_NS = 50 * 1000,
    WINDOW_NS = 500 * 1000 * 1000,      /* the shortest of this one and the last one counts; */
    WINDOW_LEAST = 16,                  /* longer, where measurements are rare */
    QUIET_FIRST_NS = 30 * 1000 * 1000,  /* between waits for a quiet card, at first */
    QUIET_EVERY_NS = 250 * 1000 * 1000, /* and later */
};
static const uint64_t trust_ns = 2000000000; /* a clean mean is old after that */

struct kind {
    const void *key;
    uint64_t shape;
    CUcontext context;
    uint64_t launches, first_launch_ns;
    uint64_t mean_ns;          /* of clean measurements */
    uint64_t clean_at_ns;      /* when the last of them was made */
    uint64_t shortest_ns[2];   /* of disturbed ones: this window and the one before */
    uint64_t window_began_ns, quiet_at_ns;
    uint32_t clean, odd, in_window;
};

enum sample_state { FREE, STARTED, RUNNING };
struct sample {
    enum sample_state state;
    CUcontext context; /* of the events; NULL: there are none */
    CUevent start, stop;
    struct kind *kind;
    const void *key;
    uint64_t shape, charged_ns, others, switches;
    uint64_t gap_ns; /* from the first event to the launch, where no work was in between */
    int card;
    bool disturbed, known;
};

static pthread_mutex_t costs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kind kinds[KINDS];
static struct sample samples[SAMPLES];
static int running; /* samples that are RUNNING; read without the lock */

/* Own work on another stream disturbs a measurement as a neighbour's does. */
static CUstream last_stream;
static uint64_t stream_switches, own_launches[PARTAGE_CARDS], own_until_ns[PARTAGE_CARDS];

/* ---- kinds ---------------------------------------------------------------------------------------- */

static struct kind *kind_of(const struct work *work)
{
    uint64_t mixed = ((uint64_t)work->key ^ work->shape * 0x9E3779B97F4A7C15ull);
    mixed = (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9ull;
    struct kind *rarest = NULL;
    for (int i = 0; i < PROBES; i++) {
        struct kind *kind = &kinds[(mixed + (uint64_t)i) % KINDS];
        if (kind->key == work->key && kind->shape == work->shape)
            return kind;
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

static uint64_t expected(const struct kind *kind)
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

static void learn(struct kind *kind, uint64_t took_ns, bool disturbed)
{
    uint64_t now = now_ns();
    if (disturbed || is_odd(kind, took_ns))
        learn_disturbed(kind, took_ns, now);
    else
        learn_clean(kind, took_ns, now);
}

/* ---- asking ---------------------------------------------------------------------------------------- */

/* Returns when the first of its kind was launched, or 0. */
static uint64_t look_up(struct work *work)
{
    pthread_mutex_lock(&costs_lock);
    const struct kind *kind = kind_of(work);
    work->charged_ns = expected(kind);
    work->known = work->charged_ns > 0;
    uint64_t first_ns = kind->launches ? kind->first_launch_ns : 0;
    pthread_mutex_unlock(&costs_lock);
    return first_ns;
}

/* The first launch of a kind goes unpriced; the second waits to learn what the first has cost, or
 * thousands could be queued for nothing. Not for ever: the first may be waiting for the second. */
void costs_expect(struct work *work)
{
    uint64_t first_ns = look_up(work);
    while (!work->known && first_ns && now_ns() - first_ns < FIRST_WAIT_NS) {
        struct timespec pause = {0, FIRST_LOOK_NS};
        nanosleep(&pause, NULL);
        costs_harvest(work->place.context);
        first_ns = look_up(work);
    }
    if (!work->known && first_ns) { /* it runs for so long already */
        work->charged_ns = now_ns() - first_ns;
        work->known = true;
    }
}

/* ---- measuring --------------------------------------------------------------------------------------- */

/* Of the next launch. */
static bool will_be_measured(const struct kind *kind)
{
    uint64_t number = kind->launches + 1;
    return number <= ALWAYS || number % EVERY == 0 || expected(kind) >= LONG_NS;
}

/* Whether to wait for the neighbours to be done before this launch, since it will be measured and
 * disturbed measurements are all there is. */
bool costs_want_quiet(const struct work *work)
{
    pthread_mutex_lock(&costs_lock);
    struct kind *kind = kind_of(work);
    uint64_t now = now_ns(), every = kind->launches < ALWAYS ? QUIET_FIRST_NS : QUIET_EVERY_NS;
    bool old = !kind->clean || now - kind->clean_at_ns > trust_ns / 2;
    bool wanted = old && now - kind->quiet_at_ns > every && will_be_measured(kind);
    if (wanted)
        kind->quiet_at_ns = now;
    pthread_mutex_unlock(&costs_lock);
    return wanted;
}

/* Launches by anybody but this process. */
static uint64_t others_launches(int card)
{
    return neighbours_launches(card) + tenant_launches(card) - own_launches[card];
}

/* A free sample with events of that context: best one that has them already. */
static struct sample *free_sample(CUcontext context)
{
    struct sample *found = NULL;
    for (struct sample *sample = samples; sample < samples + SAMPLES; sample++) {
        if (sample->state != FREE)
            continue;
        if (sample->context == context)
            return sample;
        if (!found || (found->context && !sample->context))
            found = sample;
    }
    return found;
}

static bool has_events(struct sample *sample, CUcontext context)
{
    if (sample->context == context)
        return true;
    if (sample->context) {
        REAL(cuEventDestroy_v2)(sample->start);
        REAL(cuEventDestroy_v2)(sample->stop);
    }
    sample->context = NULL;
    if (REAL(cuEventCreate)(&sample->start, 0) || REAL(cuEventCreate)(&sample->stop, 0))
        return false;
    sample->context = context;
    return true;
}

static CUresult record(const struct work *work, CUevent event)
{
    return work->per_thread ? REAL(cuEventRecord_ptsz)(event, work->stream)
                            : REAL(cuEventRecord)(event, work->stream);
}

static void note_own_launch(const struct work *work, uint64_t now)
{
    int card = work->place.card;
    uint64_t until = own_until_ns[card] > now ? own_until_ns[card] : now;
    own_until_ns[card] = until + work->charged_ns;
    own_launches[card]++;
    stream_switches += last_stream != work->stream;
    last_stream = work->stream;
}

static int start_sample(const struct work *work, struct kind *kind, uint64_t now)
{
    struct sample *sample = free_sample(work->place.context);
    int card = work->place.card;
    if (!sample || !has_events(sample, work->place.context) || record(work, sample->start))
        return -1;
    bool own_elsewhere = last_stream != work->stream && own_until_ns[card] > now;
    sample->state = STARTED;
    sample->kind = kind;
    sample->key = work->key;
    sample->shape = work->shape;
    sample->charged_ns = work->charged_ns;
    sample->known = work->known;
    sample->card = card;
    sample->disturbed = own_elsewhere || !fence_boards[card] || neighbours_active(card, now);
    sample->gap_ns = own_until_ns[card] <= now ? now_ns() : 0;
    return (int)(sample - samples);
}

void costs_begin(struct work *work, uint64_t now)
{
    pthread_mutex_lock(&costs_lock);
    struct kind *kind = kind_of(work);
    work->sample = will_be_measured(kind) ? start_sample(work, kind, now) : -1;
    if (!kind->launches++)
        kind->first_launch_ns = now;
    note_own_launch(work, now);
    if (work->sample >= 0) {
        struct sample *sample = &samples[work->sample];
        sample->switches = stream_switches;
        sample->others = others_launches(work->place.card);
        sample->gap_ns = sample->gap_ns ? now_ns() - sample->gap_ns : 0;
    }
    pthread_mutex_unlock(&costs_lock);
}

void costs_end(const struct work *work, CUresult result)
{
    if (work->sample < 0)
        return;
    struct sample *sample = &samples[work->sample];
    bool recorded = !result && !record(work, sample->stop);
    pthread_mutex_lock(&costs_lock);
    if (sample->state == STARTED) {
        sample->state = recorded ? RUNNING : FREE;
        __atomic_add_fetch(&running, recorded, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&costs_lock);
}

/* Returns by how much the launch was charged too little. */
static int64_t finish(struct sample *sample, float milliseconds)
{
    struct kind *kind = sample->kind;
    sample->state = FREE;
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELAXED);
    if (kind->key != sample->key || kind->shape != sample->shape)
        return 0; /* forgotten meanwhile */
    bool disturbed = sample->disturbed || sample->switches != stream_switches ||
                     sample->others != others_launches(sample->card);
    uint64_t took = (uint64_t)((double)milliseconds * 1e6);
    learn(kind, took > sample->gap_ns ? took - sample->gap_ns : 1, disturbed);
    return (int64_t)expected(kind) - (int64_t)sample->charged_ns;
}

void costs_harvest(CUcontext context)
{
    if (!__atomic_load_n(&running, __ATOMIC_RELAXED))
        return;
    pthread_mutex_lock(&costs_lock);
    for (struct sample *sample = samples; sample < samples + SAMPLES; sample++) {
        float milliseconds;
        if (sample->state != RUNNING || sample->context != context ||
            REAL(cuEventQuery)(sample->stop))
            continue;
        if (REAL(cuEventElapsedTime)(&milliseconds, sample->start, sample->stop))
            milliseconds = 0;
        pace_correct(sample->card, finish(sample, milliseconds), sample->known);
    }
    pthread_mutex_unlock(&costs_lock);
}

void costs_forget_context(CUcontext context)
{
    pthread_mutex_lock(&costs_lock);
    for (struct sample *sample = samples; sample < samples + SAMPLES; sample++)
        if (sample->context == context) {
            running -= sample->state == RUNNING;
            *sample = (struct sample){.state = FREE};
        }
    for (struct kind *kind = kinds; kind < kinds + KINDS; kind++)
        if (kind->context == context)
            *kind = (struct kind){.key = kind->key, .shape = kind->shape};
    pthread_mutex_unlock(&costs_lock);
}

void costs_forked(void)
{
    pthread_mutex_init(&costs_lock, NULL);
    memset(kinds, 0, sizeof kinds);
    memset(samples, 0, sizeof samples);
    running = 0;
}
