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
    USUAL_OF = 16, /* measurements that the usual price remembers */
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
    uint32_t rate;
    bool disturbed, known;
};

static pthread_mutex_t costs_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sample samples[SAMPLES];
static int running; /* samples that are RUNNING; read without the lock */

static uint64_t usual_ns; /* what launches of this process cost, over all kinds */
static uint64_t began_ns; /* when it first launched */

/* Own work on another stream disturbs a measurement as a neighbour's does. */
static struct own {
    CUstream stream;
    pthread_t thread; /* which has a default stream of its own */
    uint64_t switches, launches, until_ns;
} owns[PARTAGE_CARDS];

/* ---- asking ---------------------------------------------------------------------------------------- */

static struct sample *free_sample(CUcontext context);

/* Nothing is known of its kind, and somebody is about to learn something: of the first launch of the
 * kind or of the process, or there is no way to measure this one yet. */
static bool better_wait(const struct work *work, uint64_t now)
{
    pthread_mutex_lock(&costs_lock);
    const struct kind *kind = kind_of(work);
    bool first_runs = kind->launches && now - kind->first_launch_ns < FIRST_WAIT_NS;
    bool none_known = !usual_ns && now - began_ns < FIRST_WAIT_NS;
    bool wait = !kind_expected(kind) && __atomic_load_n(&running, __ATOMIC_RELAXED) &&
                (first_runs || none_known || !free_sample(work->place.context));
    pthread_mutex_unlock(&costs_lock);
    return wait;
}

/* The first launch of a kind goes for the usual price; the second waits to learn what the first has
 * cost, or thousands could be queued too cheaply. Not for ever: the first may be waiting for the
 * second. */
void costs_await(const struct work *work)
{
    uint64_t came = now_ns(), now = came;
    while (now - came < FIRST_WAIT_NS && better_wait(work, now)) {
        struct timespec pause = {0, FIRST_LOOK_NS};
        nanosleep(&pause, NULL);
        costs_harvest();
        now = now_ns();
    }
}

void costs_price(struct work *work)
{
    pthread_mutex_lock(&costs_lock);
    const struct kind *kind = kind_of(work);
    work->charged_ns = kind_expected(kind);
    if (!work->charged_ns)
        work->charged_ns = usual_ns;
    work->known = work->charged_ns > 0;
    pthread_mutex_unlock(&costs_lock);
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
    return neighbours->launches + tenant_launches(card) - owns[card].launches;
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

static bool make_events(struct sample *sample)
{
    if (REAL(cuEventCreate)(&sample->start, 0))
        return false;
    if (!REAL(cuEventCreate)(&sample->stop, 0))
        return true;
    REAL(cuEventDestroy_v2)(sample->start);
    return false;
}

static bool has_events(struct sample *sample, CUcontext context)
{
    CUcontext popped;
    if (sample->context == context)
        return true;
    if (sample->context) {
        REAL(cuEventDestroy_v2)(sample->start);
        REAL(cuEventDestroy_v2)(sample->stop);
    }
    sample->context = NULL;
    if (REAL(cuCtxPushCurrent_v2)(context))
        return false;
    if (make_events(sample))
        sample->context = context;
    REAL(cuCtxPopCurrent_v2)(&popped);
    return sample->context;
}

static CUresult record(const struct work *work, CUevent event)
{
    return work->per_thread ? REAL(cuEventRecord_ptsz)(event, work->stream)
                            : REAL(cuEventRecord)(event, work->stream);
}

static bool same_stream(const struct own *own, const struct work *work)
{
    bool same_thread = !work->per_thread || pthread_equal(own->thread, pthread_self());
    return own->stream == work->stream && same_thread;
}

static void note_own_launch(const struct work *work, uint64_t now)
{
    struct own *own = &owns[work->place.card];
    own->until_ns = (own->until_ns > now ? own->until_ns : now) + work->charged_ns;
    own->launches++;
    own->switches += !same_stream(own, work);
    own->stream = work->stream;
    own->thread = pthread_self();
    began_ns = began_ns ? began_ns : now;
}

static int start_sample(const struct work *work, struct kind *kind, uint64_t now)
{
    struct sample *sample = free_sample(work->place.context);
    int card = work->place.card;
    struct neighbours neighbours = neighbours_now(card);
    if (!sample || !has_events(sample, work->place.context) || record(work, sample->start))
        return -1;
    const struct own *own = &owns[card];
    sample->gap_ns = own->until_ns <= now ? now_ns() : 0;
    bool own_elsewhere = own->until_ns > now && !same_stream(own, work);
    sample->state = STARTED;
    sample->kind = kind;
    sample->key = work->key;
    sample->shape = work->shape;
    sample->charged_ns = work->charged_ns;
    sample->known = work->known;
    sample->rate = work->rate;
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
        sample->switches = owns[work->place.card].switches;
        sample->gap_ns = sample->gap_ns ? now_ns() - sample->gap_ns : 0;
    }
    pthread_mutex_unlock(&costs_lock);
}

/* A launch that failed was none. */
static void forget_launch(const struct work *work)
{
    struct kind *kind = kind_of(work);
    kind->launches -= kind->launches > 0;
}

void costs_end(const struct work *work, CUresult result)
{
    struct sample *sample = work->sample < 0 ? NULL : &samples[work->sample];
    bool recorded = sample && !result && !record(work, sample->stop);
    pthread_mutex_lock(&costs_lock);
    if (result)
        forget_launch(work);
    if (sample && sample->state == STARTED) {
        sample->state = recorded ? RUNNING : FREE;
        __atomic_add_fetch(&running, recorded, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&costs_lock);
}

static bool was_disturbed(const struct sample *sample)
{
    struct neighbours neighbours = neighbours_now(sample->card);
    return sample->disturbed || sample->switches != owns[sample->card].switches ||
           sample->others != others_launches(sample->card, &neighbours);
}

/* Returns by how much the launch was charged too little. */
static int64_t finish(struct sample *sample, float milliseconds)
{
    struct kind *kind = sample->kind;
    uint64_t took = (uint64_t)((double)milliseconds * 1e6);
    took = took > sample->gap_ns ? took - sample->gap_ns : 1;
    if (kind->key == sample->key && kind->shape == sample->shape) { /* not forgotten meanwhile */
        kind_learn(kind, took, was_disturbed(sample));
        took = kind_expected(kind);
    }
    int64_t off = (int64_t)(took - usual_ns);
    usual_ns = usual_ns ? (uint64_t)((int64_t)usual_ns + off / USUAL_OF) : took;
    return (int64_t)took - (int64_t)sample->charged_ns;
}

/* While any stream of the program is captured, asking after an event would spoil the capture; unless
 * the thread says that it knows what it does. Returns the mode that it was in. */
int capture_mode(int mode)
{
    if (HAVE(cuThreadExchangeStreamCaptureMode))
        REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return mode;
}

/* False: it is still running. */
static bool harvest(struct sample *sample)
{
    float milliseconds;
    CUresult state = REAL(cuEventQuery)(sample->stop);
    if (state == CUDA_ERROR_NOT_READY)
        return false;
    bool measured = !state && !REAL(cuEventElapsedTime)(&milliseconds, sample->start, sample->stop);
    int64_t more = measured ? finish(sample, milliseconds) : 0;
    more = pace_correct(sample->card, more, sample->known, sample->rate);
    neighbours_tell_finished(sample->card, sample->told_ns + (uint64_t)more);
    sample->state = FREE;
    return true;
}

void costs_harvest(void)
{
    if (!__atomic_load_n(&running, __ATOMIC_RELAXED))
        return;
    int mode = capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    pthread_mutex_lock(&costs_lock);
    for (struct sample *sample = samples; sample < samples + SAMPLES; sample++)
        if (sample->state == RUNNING && harvest(sample))
            __atomic_sub_fetch(&running, 1, __ATOMIC_RELAXED);
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
    usual_ns = began_ns = 0;
    memset(owns, 0, sizeof owns);
}
