/* A lock that no fork leaves held, for what is found at the first call.
 *
 * Until then nothing of ours hears of a fork. So the lock knows the process that took it: the child
 * of a fork, in which no other thread goes on, takes it from a process that it is not, and finds
 * everything anew. */
#pragma once
#include "fence.h"
#include <time.h>
#include <unistd.h>

static inline void first_lock(int *lock)
{
    const struct timespec pause = {0, 20000};
    int mine = getpid(), holder = 0;
    struct calm calm = calm_begin();
    while (!__atomic_compare_exchange_n(lock, &holder, mine, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
        if (holder == mine) {
            nanosleep(&pause, NULL);
            holder = 0;
        }
    calm_end(calm);
}

static inline void first_unlock(int *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }
