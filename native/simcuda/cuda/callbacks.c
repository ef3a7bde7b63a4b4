/*
 * Callbacks. One helper thread, begun with the first of them, runs all in the order of their time.
 * A callback takes no time of its stream: what was queued behind it does not wait for its return,
 * though synchronizing does.
 */
#include "cuda/callbacks.h"

#include <signal.h>
#include <stdlib.h>

#include "cuda/captures.h"

static struct callback *first;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool helper_runs;

bool callbacks_pending(unsigned long long stream_id)
{
    for (const struct callback *callback = first; callback; callback = callback->next)
        if (!stream_id || callback->stream_id == stream_id)
            return true;
    return false;
}

void callbacks_wait(unsigned long long stream_id)
{
    while (callbacks_pending(stream_id))
        driver_sleep(&changed);
}

static void call(void *pointer)
{
    const struct callback *callback = pointer;
    if (callback->legacy)
        callback->legacy(callback->handle, CUDA_SUCCESS, callback->data);
    else
        callback->function(callback->data);
}

/* It stays at the head while it runs: one who waits for it must not be told it is done. */
static void run_first(void)
{
    struct callback *callback = first;
    driver_wait(callback->device, callback->queue_ns);
    if (callback != first)
        return; /* an earlier one came meanwhile */
    driver_unlocked(call, callback);
    for (struct callback **link = &first; *link; link = &(*link)->next) {
        if (*link != callback)
            continue;
        *link = callback->next;
        break;
    }
    free(callback);
    pthread_cond_broadcast(&changed);
}

static void *help(void *unused)
{
    (void)unused;
    if (driver_enter())
        return 0;
    for (;;) {
        while (!first)
            driver_sleep(&changed);
        run_first();
    }
    return 0;
}

/* The helper takes no signals: they belong to the program's own threads. */
static bool start_helper(void)
{
    pthread_t thread;
    sigset_t all, before;
    if (helper_runs)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    helper_runs = !pthread_create(&thread, 0, help, 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    if (helper_runs)
        pthread_detach(thread);
    return helper_runs;
}

CUresult callback_queue(struct stream *stream, struct callback what)
{
    struct callback *callback = malloc(sizeof *callback), **link = &first;
    if (!callback || !start_helper()) {
        free(callback);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *callback = what;
    callback->stream_id = stream->id;
    callback->device = stream_device(stream);
    callback->queue_ns = stream_tail(stream);
    uint64_t host_ns = card_host_time(callback->device->card, callback->queue_ns);
    while (*link && card_host_time((*link)->device->card, (*link)->queue_ns) <= host_ns)
        link = &(*link)->next;
    callback->next = *link;
    *link = callback;
    pthread_cond_broadcast(&changed);
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void *userData, unsigned int syncMode)
{
    ENTER_STREAM(stream, hStream);
    (void)syncMode;
    REQUIRE_VALUE(fn);
    if (stream->capture)
        return capture_host(stream, fn, userData);
    return callback_queue(stream, (struct callback){.function = fn, .data = userData});
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    return cuLaunchHostFunc_v2(hStream, fn, userData, 0);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned int flags)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(callback && !flags);
    if (stream->capture)
        return capture_spoil(stream);
    struct callback what = {.legacy = callback, .data = userData, .handle = hStream};
    return callback_queue(stream, what);
}
