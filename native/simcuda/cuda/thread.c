/* What a thread has of its own. Fixed in size, and little: so is the room for it. */
#include "cuda/thread.h"

#define DEPTH_MAX 32

__thread bool stream_of_thread;

static __thread struct {
    struct context *stack[DEPTH_MAX];
    unsigned depth;
    CUstreamCaptureMode capture_mode;
    unsigned long long number;
} thread;

struct context *thread_context(void)
{
    return thread.depth ? thread.stack[thread.depth - 1] : 0;
}

/* cuCtxSetCurrent replaces the top of the stack; with NULL it takes the top away. */
void thread_set_context(struct context *context)
{
    thread_pop();
    if (context)
        thread_push(context);
}

bool thread_push(struct context *context)
{
    if (thread.depth == DEPTH_MAX)
        return false;
    thread.stack[thread.depth++] = context;
    return true;
}

struct context *thread_pop(void)
{
    return thread.depth ? thread.stack[--thread.depth] : 0;
}

unsigned long long thread_number(void)
{
    static unsigned long long numbers;
    if (!thread.number)
        thread.number = __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED);
    return thread.number;
}

CUstreamCaptureMode *thread_capture_mode(void)
{
    return &thread.capture_mode;
}
