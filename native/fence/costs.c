/* Measuring what launches cost: events around some of them, and what was going on meanwhile. */
#define _GNU_SOURCE
#include "kinds.h"
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    SAMPLES = 64,                      /* measurements under way */
    FIRST_WAIT_NS = 250 * 1000 * 1000, /* for the first measurement of a kind */
    FIRST_LOOK_NS = 50 * 1000,
};

enum sample_state { FREE, STARTED, RUNNING };
struct sample {
    enum sample_state state;
    CUcontext context; /* of the events; NULL: there are none */
    CUevent start, stop;
    struct kind *kind;
    const void *key;
    uint64_t shape, charged_ns, told_ns, others, switches;
    uint64_t gap_ns; /* from the first event to the launch, where no work was in between */
    int card;
    bool disturbed, known;
};

static pthread_mutex_t costs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sample samples[SAMPLES];
static int running; /* samples that are RUNNING; read without the lock */

/* Own work on another stream disturbs a measurement as a neighbour's does. */
static CUstream last_stream;
static uint64_t stream_switches, own_launches[PARTAGE_CARDS], own_until_ns[PARTAGE_CARDS];

/* ---- asking ---------------------------------------------------------------------------------------- */

/* Returns when the first of its kind was launched, or 0. */
static uint64_t look_up(struct work *work)
{
    pthread_mutex_lock(&costs_lock);
    const struct kind *kind = kind_of(work);
    work->charged_ns = kind_expected(kind);
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

bool costs_want_quiet(const struct work *work)
{
    pthread_mutex_lock(&costs_lock);
    bool wanted = kind_wants_quiet(kind_of(work));
    pthread_mutex_unlock(&costs_lock);
    return wanted;
}

/* Launches by anybody but this process. */
static uint64_t others_launches(int card, const struct neighbours *neighbours)
{
    return neighbours->launches + tenant_launches(card) - own_launches[card];
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
    struct neighbours neighbours = neighbours_now(card);
    if (!sample || !has_events(sample, work->place.context) || record(work, sample->start))
        return -1;
    sample->gap_ns = own_until_ns[card] <= now ? now_ns() : 0;
    bool own_elsewhere = last_stream != work->stream && own_until_ns[card] > now;
    sample->state = STARTED;
    sample->kind = kind;
    sample->key = work->key;
    sample->shape = work->shape;
    sample->charged_ns = work->charged_ns;
    sample->known = work->known;
    sample->told_ns = work->told_ns;
    sample->card = card;
    sample->disturbed = own_elsewhere || !fence_seats[card] || neighbours.done_ns > now;
    sample->others = others_launches(card, &neighbours) - 1; /* this one was told, and not noted */
    return (int)(sample - samples);
}

void costs_begin(struct work *work, uint64_t now)
{
    pthread_mutex_lock(&costs_lock);
    struct kind *kind = kind_of(work);
    work->sample = kind_to_be_measured(kind) ? start_sample(work, kind, now) : -1;
    if (!kind->launches++)
        kind->first_launch_ns = now;
    note_own_launch(work, now);
    if (work->sample >= 0) {
        struct sample *sample = &samples[work->sample];
        sample->switches = stream_switches;
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
    struct neighbours neighbours = neighbours_now(sample->card);
    bool disturbed = sample->disturbed || sample->switches != stream_switches ||
                     sample->others != others_launches(sample->card, &neighbours);
    uint64_t took = (uint64_t)((double)milliseconds * 1e6);
    kind_learn(kind, took > sample->gap_ns ? took - sample->gap_ns : 1, disturbed);
    return (int64_t)kind_expected(kind) - (int64_t)sample->charged_ns;
}

/* While any stream of the program is captured, asking after an event would spoil the capture; unless
 * the thread says that it knows what it does. Returns the mode that it was in. */
static int capture_mode(int mode)
{
    if (HAVE(cuThreadExchangeStreamCaptureMode))
        REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return mode;
}

void costs_harvest(CUcontext context)
{
    if (!__atomic_load_n(&running, __ATOMIC_RELAXED))
        return;
    int mode = capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_mutex_lock(&costs_lock);
    for (struct sample *sample = samples; sample < samples + SAMPLES; sample++) {
        float milliseconds;
        if (sample->state != RUNNING || sample->context != context ||
            REAL(cuEventQuery)(sample->stop))
            continue;
        if (REAL(cuEventElapsedTime)(&milliseconds, sample->start, sample->stop))
            milliseconds = 0;
        int64_t more = pace_correct(sample->card, finish(sample, milliseconds), sample->known);
        neighbours_tell_finished(sample->card, sample->told_ns + (uint64_t)more);
    }
    pthread_mutex_unlock(&costs_lock);
    capture_mode(mode);
}

void costs_forget_context(CUcontext context)
{
    pthread_mutex_lock(&costs_lock);
    for (struct sample *sample = samples; sample < samples + SAMPLES; sample++)
        if (sample->context == context) {
            running -= sample->state == RUNNING;
            *sample = (struct sample){.state = FREE};
        }
    kinds_forget(context);
    pthread_mutex_unlock(&costs_lock);
}

void costs_forked(void)
{
    pthread_mutex_init(&costs_lock, NULL);
    kinds_forked();
    memset(samples, 0, sizeof samples);
    running = 0;
}
