/* What a context can be asked, and the preferences that it keeps. */
#include "cuda/contexts.h"

CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(device);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    ENTER();
    struct context *context;
    refused_ = context_find(&context, ctx);
    REQUIRE(!refused_, refused_);
    REQUIRE_VALUE(device);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(flags);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    ENTER_CONTEXT(context);
    context->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    ENTER();
    struct context *context;
    refused_ = context_find(&context, ctx);
    REQUIRE(!refused_, refused_);
    REQUIRE_VALUE(ctxId);
    *ctxId = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    ENTER();
    struct context *context;
    refused_ = context_find(&context, ctx);
    REQUIRE(!refused_, refused_);
    REQUIRE_VALUE(version);
    *version = 3020; /* contexts have not changed since cuCtxCreate_v2 */
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    ENTER_CONTEXT(context);
    REQUIRE((unsigned)limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pvalue);
    REQUIRE((unsigned)limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *pvalue = context->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pconfig);
    *pconfig = context->cache;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    ENTER_CONTEXT(context);
    context->cache = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pConfig);
    *pConfig = context->shared_banks;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    ENTER_CONTEXT(context);
    context->shared_banks = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    ENTER_CONTEXT(context);
    (void)context;
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    ENTER_CONTEXT(context);
    (void)context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(pExecAffinity);
    REQUIRE(type == CU_EXEC_AFFINITY_TYPE_SM_COUNT, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    pExecAffinity->type = type;
    pExecAffinity->param.smCount.val = context->device->facts->sm_count;
    return CUDA_SUCCESS;
}
