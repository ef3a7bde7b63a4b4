/* Contexts: what a process has on a device ends with them. */
#pragma once

#include "cuda/devices.h"
#include "cuda/objects.h"
#include "cuda/thread.h"

struct stream;

struct context {
    struct object object;
    struct object owned; /* head of the list of its objects */
    struct device *device;
    unsigned long long id;
    unsigned flags;
    unsigned holders; /* retains of a primary context, attaches of another */
    bool primary;
    struct stream *legacy;         /* what stream 0 means */
    struct stream *thread_streams; /* the default streams of threads, one for each that used it */
    uint64_t end_ns;               /* of all its work; ends are in queue time of its card */
    uint64_t blocking_end_ns;      /* of the work on streams that the legacy stream waits for */
    unsigned blocking_captures; /* streams that are captured and that the legacy one waits for */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared_banks;
};

/* The current context of the thread, if it is alive and its card is. */
CUresult context_current(struct context **context);

/* A context by its handle; NULL means the current one. */
CUresult context_find(struct context **context, CUcontext handle);

/* Give a context its memory and its default stream, or take everything from it. */
CUresult context_open(struct context *context, struct device *device, unsigned flags);
void context_close(struct context *context);

/* The device of the current context, else the first one; NULL before anything is there. */
struct device *device_of_thread(void);

struct object *context_objects(struct context *context);
