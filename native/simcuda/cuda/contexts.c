/* Contexts: opening and closing them, and finding the one that is meant. */
#include "cuda/contexts.h"

#include <string.h>

#include "cuda/arrays.h"
#include "cuda/blocks.h"
#include "cuda/events.h"
#include "cuda/modules.h"
#include "cuda/streams.h"

struct object *context_objects(struct context *context)
{
    return &context->owned;
}

CUresult context_current(struct context **context)
{
    *context = thread_context();
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!object_find(*context, KIND_CONTEXT))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return device_health((*context)->device);
}

CUresult context_find(struct context **context, CUcontext handle)
{
    if (!handle)
        return context_current(context);
    *context = object_find(handle, KIND_CONTEXT);
    return *context ? device_health((*context)->device) : CUDA_ERROR_INVALID_CONTEXT;
}

struct device *device_of_thread(void)
{
    struct context *context;
    return context_current(&context) ? device_find(0) : context->device;
}

static void set_limits(struct context *context)
{
    context->limits[CU_LIMIT_STACK_SIZE] = 1024;
    context->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = MIB;
    context->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB;
    context->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    context->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    context->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

CUresult context_open(struct context *context, struct device *device, unsigned flags)
{
    static unsigned long long ids;
    CUresult result = device_usable(device);
    if (!result)
        result = device_reserve(device, driver.settings.context_bytes);
    if (result)
        return result;
    context->device = device;
    context->flags = flags;
    context->id = ++ids;
    context->end_ns = context->blocking_end_ns = 0;
    objects_prepare(&context->owned);
    set_limits(context);
    object_register(&context->object, KIND_CONTEXT);
    context->legacy = stream_new(context, CU_STREAM_DEFAULT, 0);
    card_count_context(&driver.here, device->card, 1);
    return context->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void end_object(struct object *object)
{
    static void (*const ends[KINDS])(void *) = {
        [KIND_STREAM] = stream_end,
        [KIND_EVENT] = event_end,
        [KIND_MODULE] = module_end,
        [KIND_BLOCK] = block_end,
        [KIND_ARRAY] = array_end,
        [KIND_MIPMAP] = mipmap_end,
        [KIND_TEXTURE] = object_delete,
        [KIND_SURFACE] = object_delete,
    };
    ends[object->kind](object);
}

/* Work that is queued still runs on the card; only what it ran for is gone. */
void context_close(struct context *context)
{
    struct object *last;
    while ((last = objects_last(&context->owned)))
        end_object(last);
    context->legacy = context->thread_streams = 0;
    object_forget(&context->object);
    card_count_context(&driver.here, context->device->card, -1);
    device_release(context->device, driver.settings.context_bytes);
}
