/* Streams: finding them, and the time that work on them takes. */
#include "cuda/streams.h"

#include "cuda/callbacks.h"
#include "cuda/captures.h"
#include "cuda/pools.h"

#define IN_FLIGHT_MAX 1024 /* launches that a process may have queued, as on a real card */

static struct {
    struct device *device;
    uint64_t end_ns;
} in_flight[IN_FLIGHT_MAX];
static unsigned long long launches;
static uint64_t seen_ns; /* a moment that has passed: saves a launch to read the clock */

struct stream *stream_new(struct context *context, unsigned flags, int priority)
{
    static unsigned long long ids;
    struct stream *stream = object_new(sizeof *stream, KIND_STREAM, context);
    if (!stream)
        return 0;
    stream->id = ++ids;
    stream->flags = flags;
    stream->priority = priority;
    return stream;
}

void stream_end(void *pointer)
{
    struct stream *stream = pointer;
    if (stream->capture)
        capture_abandon(stream);
    object_delete(stream);
}

/* The default stream of this thread, made at its first use. */
static CUresult find_of_thread(struct stream **found, struct context *context)
{
    unsigned long long thread = thread_number();
    struct stream *stream = context->thread_streams;
    while (stream && stream->thread != thread)
        stream = stream->next_of_thread;
    if (!stream && (stream = stream_new(context, CU_STREAM_DEFAULT, 0))) {
        stream->thread = thread;
        stream->next_of_thread = context->thread_streams;
        context->thread_streams = stream;
    }
    *found = stream;
    return stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stream_find(struct stream **stream, CUstream handle)
{
    struct context *context;
    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        *stream = object_find(handle, KIND_STREAM);
        return *stream ? device_health(stream_device(*stream)) : CUDA_ERROR_INVALID_HANDLE;
    }
    CUresult result = context_current(&context);
    if (result)
        return result;
    if (handle == CU_STREAM_PER_THREAD || (!handle && stream_of_thread))
        return find_of_thread(stream, context);
    *stream = context->legacy;
    return context->blocking_captures ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

static bool waits_for_legacy(const struct stream *stream)
{
    return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* The legacy stream waits for all that are not non-blocking, and they for it. */
uint64_t stream_tail(const struct stream *stream)
{
    const struct context *context = stream->object.context;
    if (stream == context->legacy)
        return later(stream->end_ns, context->blocking_end_ns);
    if (waits_for_legacy(stream))
        return later(stream->end_ns, context->legacy->end_ns);
    return stream->end_ns;
}

void stream_delay(struct stream *stream, uint64_t queue_ns)
{
    struct context *context = stream->object.context;
    stream->end_ns = later(stream->end_ns, queue_ns);
    context->end_ns = later(context->end_ns, queue_ns);
    if (waits_for_legacy(stream))
        context->blocking_end_ns = later(context->blocking_end_ns, queue_ns);
}

/* After a wait it may be somebody else's turn again, and the stream may be gone. */
CUresult stream_admit(const struct stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    while (!result) {
        struct device *device = in_flight[launches % IN_FLIGHT_MAX].device;
        uint64_t end_ns = in_flight[launches % IN_FLIGHT_MAX].end_ns;
        if (!device || end_ns <= seen_ns)
            break;
        seen_ns = now_ns();
        if (card_host_time(device->card, end_ns) <= seen_ns)
            break;
        result = driver_wait(device, end_ns);
        if (!object_find(stream, KIND_STREAM))
            result = CUDA_ERROR_INVALID_HANDLE;
    }
    return result;
}

void stream_compute(struct stream *stream, uint64_t duration_ns)
{
    struct device *device = stream_device(stream);
    struct run run = card_queue(&driver.here, device->card, stream_tail(stream), duration_ns);
    in_flight[launches % IN_FLIGHT_MAX].device = device;
    in_flight[launches % IN_FLIGHT_MAX].end_ns = run.end_ns;
    launches++;
    stream_delay(stream, run.end_ns);
}

void stream_occupy(struct stream *stream, uint64_t duration_ns)
{
    uint64_t now = card_queue_now(stream_device(stream)->card);
    stream_delay(stream, later(now, stream_tail(stream)) + duration_ns);
}

CUresult stream_wait(struct stream *stream)
{
    struct device *device = stream_device(stream);
    unsigned long long id = stream->id;
    if (stream->capture)
        return capture_spoil(stream);
    CUresult result = driver_wait(device, stream_tail(stream));
    if (!result)
        callbacks_wait(id);
    pools_shrink(device, false);
    return result;
}

CUresult context_wait(struct context *context)
{
    struct device *device = context->device;
    CUresult result = driver_wait(device, context->end_ns);
    if (!result)
        callbacks_wait(0);
    pools_shrink(device, false);
    return result;
}
