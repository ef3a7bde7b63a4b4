/*
 * The driver in this process: its machine, its lock, and how a call enters it.
 *
 * One mutex guards everything a process has. Public functions take it with ENTER and friends and
 * let it go when they return; other functions want it held. Only driver_wait lets go of it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/queue.h"
#include "cuda/api.h"

struct context;
struct device;

struct driver {
    bool initialized;
    bool forked; /* this is the child of a process that had initialized: nothing works any more */
    struct attachment here;
    struct settings settings;
};

extern struct driver driver;

int driver_cuda_version(void);

/* Takes the mutex and returns CUDA_SUCCESS, or says why not. */
CUresult driver_enter(void);
void driver_leave(const void *unused);

/* Wait, with the mutex free meanwhile, until a moment of a card's queue time has passed. */
CUresult driver_wait(struct device *device, uint64_t queue_ns);

/* Wait for a signal, with the mutex free meanwhile. */
void driver_sleep(pthread_cond_t *signal);

/* Run something with the mutex free: a callback of the user may call the driver. */
void driver_unlocked(void (*function)(void *), void *argument);

#define LEAVE_AT_RETURN __attribute__((cleanup(driver_leave), unused)) const int entered_ = 0

/* Enter the driver, or return the error. */
#define ENTER()                             \
    CUresult refused_ = driver_enter();     \
    if (refused_)                           \
        return refused_;                    \
    LEAVE_AT_RETURN

/* Enter, and find the device of an ordinal. */
#define ENTER_DEVICE(found, ordinal)                    \
    ENTER();                                            \
    struct device *found = device_find(ordinal);        \
    if (!found)                                         \
        return CUDA_ERROR_INVALID_DEVICE

/* Enter, and find the current context. */
#define ENTER_CONTEXT(found)                            \
    ENTER();                                            \
    struct context *found;                              \
    refused_ = context_current(&found);                 \
    if (refused_)                                       \
        return refused_

/* Enter, and find the stream of a handle; 0 and its like are streams of the current context. */
#define ENTER_STREAM(found, handle)                     \
    ENTER();                                            \
    struct stream *found;                               \
    refused_ = stream_find(&found, handle);             \
    if (refused_)                                       \
        return refused_

/* Enter to launch something on a stream, which may mean to wait. */
#define ENTER_LAUNCH(found, handle)                     \
    ENTER_STREAM(found, handle);                        \
    refused_ = stream_admit(found);                     \
    if (refused_)                                       \
        return refused_

/* Within a function that has entered. */
#define REQUIRE(condition, error) \
    do {                          \
        if (!(condition))         \
            return error;         \
    } while (0)

#define REQUIRE_VALUE(condition) REQUIRE(condition, CUDA_ERROR_INVALID_VALUE)

/* For functions that look into an argument before another one enters. */
static inline CUresult wrong_value(void)
{
    return driver.initialized ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_INITIALIZED;
}

static inline uint64_t round_up(uint64_t number, uint64_t step)
{
    return (number + step - 1) / step * step;
}
