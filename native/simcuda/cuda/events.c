/* Events: moments of a card's queue time. */
#include "cuda/events.h"

#include <stdlib.h>

#include "cuda/callbacks.h"
#include "cuda/captures.h"
#include "cuda/pools.h"

void event_end(void *pointer)
{
    struct event *event = pointer;
    free(event->heads);
    object_delete(event);
}

void event_record(struct event *event, const struct stream *stream)
{
    event->device = stream_device(stream);
    event->queue_ns = later(card_queue_now(event->device->card), stream_tail(stream));
    event->stream_id = stream->id;
    event->capture_id = 0;
}

void event_delays(const struct event *event, struct stream *stream)
{
    struct device *device = stream_device(stream);
    if (!event->device)
        return;
    uint64_t queue_ns = event->queue_ns;
    if (event->device != device) {
        uint64_t host_ns = card_host_time(event->device->card, queue_ns);
        card_lock(device->card);
        queue_ns = queue_time_locked(device->card, host_ns);
        card_unlock(device->card);
    }
    stream_delay(stream, queue_ns);
}

static bool passed(const struct event *event)
{
    return !event->device ||
           (card_passed(&driver.here, event->device->card, event->queue_ns) &&
            !callbacks_pending(event->stream_id));
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(phEvent && Flags < 8);
    struct event *event = object_new(sizeof *event, KIND_EVENT, context);
    REQUIRE(event, CUDA_ERROR_OUT_OF_MEMORY);
    event->flags = Flags;
    *phEvent = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent hEvent)
{
    ENTER();
    struct event *event = object_find(hEvent, KIND_EVENT);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    event_end(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    ENTER_STREAM(stream, hStream);
    struct event *event = object_find(hEvent, KIND_EVENT);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(event->object.context->device == stream_device(stream), CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture)
        return capture_record(stream, event, flags & CU_EVENT_RECORD_EXTERNAL);
    event_record(event, stream);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
    return cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventQuery(CUevent hEvent)
{
    ENTER();
    struct event *event = object_find(hEvent, KIND_EVENT);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!event->capture_id, CUDA_ERROR_CAPTURED_EVENT);
    REQUIRE(!device_health(event->object.context->device), CUDA_ERROR_DEVICE_UNAVAILABLE);
    return passed(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
    ENTER();
    struct event *event = object_find(hEvent, KIND_EVENT);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!event->capture_id, CUDA_ERROR_CAPTURED_EVENT);
    if (!event->device)
        return CUDA_SUCCESS;
    struct device *device = event->device;
    unsigned long long stream_id = event->stream_id;
    CUresult result = driver_wait(device, event->queue_ns);
    if (!result)
        callbacks_wait(stream_id);
    pools_shrink(device, false);
    return result;
}

/* Exact to the nanosecond, as far as a float of milliseconds can be. */
CUresult cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    ENTER();
    struct event *start = object_find(hStart, KIND_EVENT), *end = object_find(hEnd, KIND_EVENT);
    REQUIRE_VALUE(pMilliseconds);
    REQUIRE(start && end && start->device && start->device == end->device &&
                !((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING),
            CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(passed(start) && passed(end), CUDA_ERROR_NOT_READY);
    uint64_t start_ns = card_host_time(start->device->card, start->queue_ns);
    uint64_t end_ns = card_host_time(end->device->card, end->queue_ns);
    *pMilliseconds = (float)((double)(int64_t)(end_ns - start_ns) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent)
{
    ENTER();
    struct context *context;
    struct event *event = object_find(hEvent, KIND_EVENT);
    refused_ = context_find(&context, hCtx);
    REQUIRE(!refused_, refused_);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    event_record(event, context->legacy);
    event->queue_ns = later(event->queue_ns, context->end_ns);
    return CUDA_SUCCESS;
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent)
{
    ENTER();
    struct context *context;
    struct event *event = object_find(hEvent, KIND_EVENT);
    refused_ = context_find(&context, hCtx);
    REQUIRE(!refused_, refused_);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    event_delays(event, context->legacy);
    return CUDA_SUCCESS;
}
