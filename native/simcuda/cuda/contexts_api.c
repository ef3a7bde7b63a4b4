/* Contexts that a program creates and destroys, and the thread's stack of them. */
#include <stdlib.h>

#include "cuda/contexts.h"
#include "cuda/streams.h"

static CUresult create(CUcontext *out, unsigned flags, struct device *device)
{
    struct context *context = calloc(1, sizeof *context);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = context_open(context, device, flags);
    if (!result && !thread_push(context)) {
        context_close(context);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result) {
        free(context);
        return result;
    }
    context->holders = 1;
    *out = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(pctx);
    return create(pctx, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                        unsigned int flags, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(pctx && numParams >= 0 && (paramsArray || !numParams));
    return create(pctx, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    (void)ctxCreateParams; /* affinity and graphics: nothing here depends on them */
    REQUIRE_VALUE(pctx);
    return create(pctx, flags, device);
}

static CUresult destroy(CUcontext handle)
{
    struct context *context = object_find(handle, KIND_CONTEXT);
    REQUIRE(context && !context->primary, CUDA_ERROR_INVALID_CONTEXT);
    if (thread_context() == context)
        thread_pop();
    context_close(context);
    free(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
    ENTER();
    REQUIRE_VALUE(ctx);
    return destroy(ctx);
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pctx && !flags);
    context->holders++;
    *pctx = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx)
{
    ENTER();
    struct context *context = object_find(ctx, KIND_CONTEXT);
    REQUIRE(context && !context->primary, CUDA_ERROR_INVALID_CONTEXT);
    return --context->holders ? CUDA_SUCCESS : destroy(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
    ENTER();
    struct context *context = object_find(ctx, KIND_CONTEXT);
    REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
    return thread_push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
    ENTER();
    struct context *context = thread_pop();
    REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
    if (pctx)
        *pctx = (CUcontext)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    ENTER();
    struct context *context = object_find(ctx, KIND_CONTEXT);
    REQUIRE(context || !ctx, CUDA_ERROR_INVALID_CONTEXT);
    thread_set_context(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    ENTER();
    REQUIRE_VALUE(pctx);
    *pctx = (CUcontext)thread_context();
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    ENTER_CONTEXT(context);
    return context_wait(context);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    ENTER();
    struct context *context;
    refused_ = context_find(&context, ctx);
    return refused_ ? refused_ : context_wait(context);
}
