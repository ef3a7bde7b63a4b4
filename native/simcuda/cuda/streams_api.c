/* Streams as a program sees them. */
#include <string.h>

#include "cuda/callbacks.h"
#include "cuda/captures.h"
#include "cuda/events.h"
#include "cuda/streams.h"

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(phStream && !(flags & ~(unsigned)CU_STREAM_NON_BLOCKING));
    struct stream *stream = stream_new(context, flags, priority);
    REQUIRE(stream, CUDA_ERROR_OUT_OF_MEMORY);
    *phStream = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

/* Destroying does not wait: queued work still runs, and its events still come. */
CUresult cuStreamDestroy_v2(CUstream hStream)
{
    ENTER();
    struct stream *stream = object_find(hStream, KIND_STREAM);
    REQUIRE(stream && !stream->thread && stream != stream->object.context->legacy,
            CUDA_ERROR_INVALID_HANDLE);
    stream_end(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream hStream)
{
    ENTER_STREAM(stream, hStream);
    if (stream->capture)
        return capture_spoil(stream);
    bool done = card_passed(&driver.here, stream_device(stream)->card, stream_tail(stream));
    return done && !callbacks_pending(stream->id) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
    ENTER_STREAM(stream, hStream);
    return stream_wait(stream);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    ENTER_STREAM(stream, hStream);
    struct event *event = object_find(hEvent, KIND_EVENT);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(!(Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL));
    if (stream->capture || event->capture_id)
        return capture_wait(stream, event, Flags & CU_EVENT_WAIT_EXTERNAL);
    event_delays(event, stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int *priority)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(priority);
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(flags);
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(streamId);
    *streamId = stream->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(pctx);
    *pctx = (CUcontext)stream->object.context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(pCtx && pGreenCtx);
    *pCtx = (CUcontext)stream->object.context;
    *pGreenCtx = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(device);
    *device = stream_device(stream)->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags)
{
    ENTER_STREAM(stream, hStream);
    (void)stream, (void)length, (void)flags;
    REQUIRE_VALUE(dptr);
    return CUDA_SUCCESS;
}

/* Attributes are accepted and forgotten: none of them changes what is simulated. */
CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(value_out);
    memset(value_out, 0, sizeof *value_out);
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        value_out->priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(value);
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        stream->priority = value->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    ENTER_STREAM(target, dst);
    struct stream *source;
    refused_ = stream_find(&source, src);
    REQUIRE(!refused_, refused_);
    target->priority = source->priority;
    return CUDA_SUCCESS;
}
