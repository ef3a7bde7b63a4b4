/* This process's slot in the region.
 *
 * A slot belongs to whoever holds the lock on its byte of the region file. The lock is one of an
 * open file description, so the kernel drops it when the process dies, however it dies and in
 * whatever pid namespace, and nobody has to notice in time: a slot whose lock can be taken is a
 * dead one's. Slots are never moved. To take over a slot, alive or to clear it, one must hold its
 * lock, so a clearing and a taking can never mix.
 *
 * What keeps the description open is a mapping, not a descriptor. A program that closes every
 * descriptor does not close it; the child of a fork does not inherit it, so a slot never outlives
 * its process; and the kernel lets go of it after all descriptors of a dying process, hence after
 * the driver has let go of the process's memory: what a killed process had is not free for others
 * before it is free on the card. */
#define _GNU_SOURCE
#include "fence.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* Linux 3.15 has them; the C library of 2.17 does not name them. */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

#define OVERLAY_MAGIC 0x794c7630

static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static int kept_file = -1; /* see keep */
static int my_slot = -1;
static uint64_t my_owner;

static struct flock byte_of(int slot, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
}

static bool lock_slot(int file, int slot)
{
    struct flock wanted = byte_of(slot, F_WRLCK);
    return fcntl(file, F_OFD_SETLK, &wanted) == 0;
}

static void unlock_slot(int file, int slot)
{
    struct flock wanted = byte_of(slot, F_UNLCK);
    fcntl(file, F_OFD_SETLK, &wanted);
}

/* An overlay does not map its own file but the one beneath, which has none of our locks; there,
 * and where nothing can be mapped any more, the descriptor has to stay. */
static void keep(int file)
{
    struct statfs about;
    void *held = mmap(NULL, 1, PROT_NONE, MAP_SHARED, file, 0);
    bool mapped = held != MAP_FAILED && !madvise(held, 1, MADV_DONTFORK);
    if (mapped)
        fence_seal(held, 1);
    if (mapped && !fstatfs(file, &about) && about.f_type != OVERLAY_MAGIC)
        close(file);
    else
        kept_file = file;
}

static void clear_slot(int slot)
{
    __atomic_store_n(&fence_region->slot[slot].owner, 0, __ATOMIC_RELAXED);
    for (int card = 0; card < (int)PARTAGE_CARDS; card++)
        __atomic_store_n(&fence_region->used_bytes[card][slot], 0, __ATOMIC_SEQ_CST);
}

static void raise_slots_used(uint32_t used)
{
    uint32_t seen = __atomic_load_n(&fence_region->slots_used, __ATOMIC_RELAXED);
    while (seen < used && !__atomic_compare_exchange_n(&fence_region->slots_used, &seen, used, false,
                                                       __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        ;
}

/* Different each time, so that a process which lost its slot to a mistaken clearing notices. */
static uint64_t draw_owner(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)getpid() << 40) ^ ((uint64_t)now.tv_sec << 30) ^ (uint64_t)now.tv_nsec ^ 1;
}

static void occupy(int slot)
{
    clear_slot(slot);
    __atomic_store_n(&fence_region->slot[slot].group, fence_group_limits ? fence_group_limits->number : 0,
                     __ATOMIC_SEQ_CST); /* before anything is counted there */
    raise_slots_used((uint32_t)slot + 1);
    fence_region->slot[slot].pid = getpid();
    for (int card = 0; card < (int)PARTAGE_CARDS; card++)
        __atomic_store_n(&fence_region->used_bytes[card][slot],
                         ledger_bytes(card) + pools_bytes(card) + contexts_bytes(card),
                         __ATOMIC_SEQ_CST);
    for (int card = 0; card < (int)PARTAGE_CARDS; card++)
        quota_added(card);
    uint64_t owner = draw_owner();
    __atomic_store_n(&my_owner, owner, __ATOMIC_RELAXED);
    __atomic_store_n(&fence_region->slot[slot].owner, owner, __ATOMIC_RELEASE);
    __atomic_store_n(&my_slot, slot, __ATOMIC_RELEASE);
}

/* The lowest free slot: sums go over all slots ever used, so they are kept few. */
static int take_slot(void)
{
    int file = fence_open_region();
    if (file < 0 && errno != EMFILE && errno != ENFILE) /* which may pass */
        fence_break("cannot be opened any more by this process", "the tenant's region");
    if (file < 0)
        return -1;
    for (int slot = 0; slot < (int)PARTAGE_SLOTS; slot++)
        if (lock_slot(file, slot)) {
            occupy(slot);
            keep(file);
            return slot;
        }
    close(file);
    return -1;
}

int slot_kept(void)
{
    int slot = __atomic_load_n(&my_slot, __ATOMIC_ACQUIRE);
    bool kept = slot >= 0 && __atomic_load_n(&fence_region->slot[slot].owner, __ATOMIC_RELAXED) ==
                                 __atomic_load_n(&my_owner, __ATOMIC_RELAXED);
    return likely(kept) ? slot : -1;
}

/* Somebody may have cleared the slot all the same: where a descriptor holds the lock and the program
 * closed it, or where the region was written to by hand. It shows here, at the next allocation, and
 * all that the process has is counted again in a new slot. */
APART static int slot_taken(void)
{
    struct calm calm = calm_begin();
    pthread_mutex_lock(&slots_lock);
    int slot = slot_kept();
    if (slot < 0)
        slot = take_slot();
    pthread_mutex_unlock(&slots_lock);
    calm_end(calm);
    return slot;
}

int slot_mine(void)
{
    int slot = slot_kept();
    return likely(slot >= 0) ? slot : slot_taken();
}

uint64_t slot_owner(void) { return __atomic_load_n(&my_owner, __ATOMIC_RELAXED); }

/* Looked at through a description of its own: a lock does not conflict with itself. */
bool slot_alive(int slot)
{
    struct flock wanted = byte_of(slot, F_WRLCK);
    struct calm calm = calm_begin();
    int file = fence_open_region();
    bool locked = file < 0 ? slot == slot_kept()
                           : fcntl(file, F_OFD_GETLK, &wanted) == 0 && wanted.l_type != F_UNLCK;
    if (file >= 0)
        close(file);
    calm_end(calm);
    return locked;
}

static bool holds_memory(int slot)
{
    for (unsigned card = 0; card < fence_limits->cards; card++)
        if (__atomic_load_n(&fence_region->used_bytes[card][slot], __ATOMIC_RELAXED))
            return true;
    return false;
}

void slots_reap(void)
{
    struct calm calm = calm_begin();
    int file = fence_open_region(), mine = slot_kept();
    uint32_t used = __atomic_load_n(&fence_region->slots_used, __ATOMIC_RELAXED);
    for (int slot = 0; file >= 0 && slot < (int)used && slot < (int)PARTAGE_SLOTS; slot++)
        if (slot != mine && holds_memory(slot) && lock_slot(file, slot)) {
            clear_slot(slot);
            unlock_slot(file, slot);
        }
    if (file >= 0)
        close(file);
    calm_end(calm);
}

/* A descriptor that holds the lock would keep the parent's slot beyond the parent's end. The number
 * may belong to another file by now. */
void slots_forked(void)
{
    pthread_mutex_init(&slots_lock, NULL);
    if (kept_file >= 0 && fence_is_region(kept_file))
        close(kept_file);
    kept_file = -1;
    my_slot = -1;
}
