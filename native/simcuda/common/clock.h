/* Time. Device time is the host's monotonic clock, in nanoseconds. */
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static inline uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t later(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns > other_ns ? one_ns : other_ns;
}

static inline uint64_t earlier(uint64_t one_ns, uint64_t other_ns)
{
    return one_ns < other_ns ? one_ns : other_ns;
}

/* Sleep, not spin, until a moment of the monotonic clock. */
static inline void sleep_until(uint64_t moment_ns)
{
    struct timespec moment = {(time_t)(moment_ns / NS_PER_S), (long)(moment_ns % NS_PER_S)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, 0);
}
