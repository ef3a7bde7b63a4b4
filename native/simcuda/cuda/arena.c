/*
 * Addresses for device memory.
 *
 * One reservation of address space, cut into blocks whose sizes are powers of two; freed blocks are
 * kept in one list for each size. A mapping for each allocation would cost ten times as much as all
 * the rest of cuMemAlloc, and what is measured here is what somebody puts around it.
 */
#include "cuda/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ARENA_BYTES_MAX (1ull << 43) /* all cards twice over; the host's limit is 2^47 */
#define ARENA_BYTES_MIN (1ull << 33)
#define PAGE_ORDER 12
#define KEPT_MAX (64ull << 20) /* freed blocks keep their pages up to that: giving back is slow */
#define ORDERS 44

struct freed {
    struct freed *next;
    void *start;
    size_t kept_bytes;
};

static char *arena;
static size_t arena_bytes, arena_used, kept_bytes;
static struct freed *freed[ORDERS], *spare;

static unsigned order_of(size_t bytes)
{
    unsigned order = PAGE_ORDER;
    while (order < ORDERS && (1ull << order) < bytes)
        order++;
    return order;
}

/* As much as the process may have: limits, and sanitizers, leave less than the host could give. */
static bool reserve(void)
{
    void *start = MAP_FAILED;
    for (arena_bytes = ARENA_BYTES_MAX; arena_bytes >= ARENA_BYTES_MIN; arena_bytes /= 2) {
        start = mmap(0, arena_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start != MAP_FAILED)
            break;
    }
    if (start == MAP_FAILED)
        return false;
    madvise(start, arena_bytes, MADV_DONTDUMP);
    arena = start;
    return true;
}

static void *cut(unsigned order)
{
    size_t bytes = 1ull << order, start = (arena_used + bytes - 1) & ~(bytes - 1);
    if ((!arena && !reserve()) || start + bytes > arena_bytes)
        return 0;
    arena_used = start + bytes;
    return arena + start;
}

void *arena_take(size_t bytes)
{
    unsigned order = order_of(bytes);
    if (order >= ORDERS)
        return 0;
    struct freed *again = freed[order];
    if (!again)
        return cut(order);
    freed[order] = again->next;
    kept_bytes -= again->kept_bytes;
    again->next = spare;
    spare = again;
    return again->start;
}

/* The list is kept beside the blocks: a note inside one would touch its first page. */
void arena_give(void *start, size_t bytes)
{
    unsigned order = order_of(bytes);
    struct freed *note = spare ? spare : malloc(sizeof *note);
    bool keep = kept_bytes + bytes <= KEPT_MAX;
    if (!keep || !note)
        madvise(start, bytes, MADV_DONTNEED);
    if (!note)
        return;
    if (note == spare)
        spare = spare->next;
    *note = (struct freed){freed[order], start, keep ? bytes : 0};
    kept_bytes += note->kept_bytes;
    freed[order] = note;
}

void *arena_take_low(size_t bytes)
{
#ifdef MAP_32BIT
    void *start = mmap(0, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_32BIT, -1, 0);
    return start == MAP_FAILED ? 0 : start;
#else
    (void)bytes;
    return 0;
#endif
}

void arena_give_low(void *start, size_t bytes)
{
    munmap(start, bytes);
}
