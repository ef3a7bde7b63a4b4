/* What a thread has of its own: its stack of contexts, and whose default stream it means. */
#pragma once

#include <stdbool.h>

#include "cuda/api.h"

struct context;

/* True while a function ending in _ptsz or _ptds runs: stream 0 is then that of the thread. */
extern __thread bool stream_of_thread;

#define WITH_STREAM_OF_THREAD(call)  \
    stream_of_thread = true;         \
    CUresult result = call;          \
    stream_of_thread = false;        \
    return result;

/* The current context, which may have been destroyed by another thread; NULL if there is none. */
struct context *thread_context(void);
void thread_set_context(struct context *context);
bool thread_push(struct context *context);
struct context *thread_pop(void);

/* A number that no other thread of this process has or had. */
unsigned long long thread_number(void);

CUstreamCaptureMode *thread_capture_mode(void);
