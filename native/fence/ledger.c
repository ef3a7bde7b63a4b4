/* What this process has: pointer or handle -> bytes, card, context.
 *
 * Open addressing without tombstones, so the cost of a look-up does not depend on history; in
 * shards with a lock each, so that threads rarely meet; it is mostly held for a dozen instructions,
 * hence no mutex. Memory comes from mmap: the program's allocator may itself be waiting for us. */
#define _GNU_SOURCE
#include "fence.h"
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { SHARDS = 16, FIRST_ENTRIES = 256, YIELDS = 16, PAUSE_NS = 20000 };

static struct shard {
    struct ledger_entry *entries; /* kind 0: empty */
    uint32_t size, count;
    bool locked;
} __attribute__((aligned(64))) shards[SHARDS]; /* of a cache line each */

APART static void lock_after_others(struct shard *shard)
{
    const struct timespec pause = {0, PAUSE_NS};
    struct calm calm = calm_begin();
    for (int turn = 1; __atomic_exchange_n(&shard->locked, true, __ATOMIC_ACQUIRE); turn++)
        if (turn < YIELDS)
            sched_yield();
        else
            nanosleep(&pause, NULL); /* for whom we have precedence, a yield is no turn */
    calm_end(calm);
}

static inline void lock(struct shard *shard)
{
    if (unlikely(__atomic_exchange_n(&shard->locked, true, __ATOMIC_ACQUIRE)))
        lock_after_others(shard);
}

static inline void unlock(struct shard *shard)
{
    __atomic_store_n(&shard->locked, false, __ATOMIC_RELEASE);
}

static uint64_t hash(uint64_t kind, uint64_t key)
{
    uint64_t mixed = (key ^ kind << 56) * 0x9E3779B97F4A7C15ull;
    return mixed ^ mixed >> 29;
}

static struct shard *shard_of(uint64_t hashed) { return &shards[hashed >> 60]; }

/* The entry of that key, or the empty place where it would be. */
static inline uint32_t position(const struct shard *shard, uint64_t hashed, uint64_t kind, uint64_t key)
{
    uint32_t mask = shard->size - 1, at = hashed & mask;
    const struct ledger_entry *entries = shard->entries;
    while (entries[at].kind && (entries[at].key != key || entries[at].kind != kind))
        at = (at + 1) & mask;
    return at;
}

APART static bool grow(struct shard *shard)
{
    struct shard larger = *shard;
    larger.size = shard->size ? shard->size * 2 : FIRST_ENTRIES;
    larger.entries = mmap(NULL, larger.size * sizeof *larger.entries, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (larger.entries == MAP_FAILED)
        return false;
    for (uint32_t i = 0; i < shard->size; i++) {
        const struct ledger_entry *entry = &shard->entries[i];
        if (entry->kind)
            larger.entries[position(&larger, hash(entry->kind, entry->key), entry->kind,
                                    entry->key)] = *entry;
    }
    struct shard old = *shard;
    shard->entries = larger.entries; /* first: a fork in between unmaps what it finds here */
    shard->size = larger.size;
    if (old.entries)
        munmap(old.entries, old.size * sizeof *old.entries);
    return true;
}

/* A key that is there already is written over: the driver has just said that it is new. */
bool ledger_put(const struct ledger_entry *entry, struct ledger_entry *stale)
{
    uint64_t hashed = hash(entry->kind, entry->key);
    struct shard *shard = shard_of(hashed);
    bool known = false;
    lock(shard);
    if (likely(shard->count * 2 < shard->size || grow(shard))) {
        struct ledger_entry *place =
            &shard->entries[position(shard, hashed, entry->kind, entry->key)];
        known = place->kind;
        if (unlikely(known))
            *stale = *place;
        shard->count += !known;
        *place = *entry;
    }
    unlock(shard);
    return known;
}

APART void ledger_add(const struct ledger_entry *entry)
{
    struct ledger_entry stale;
    ledger_put(entry, &stale);
}

/* Moves later entries of the run into the hole, so that none becomes unreachable. */
static void close_hole(struct shard *shard, uint32_t hole)
{
    struct ledger_entry *entries = shard->entries;
    uint32_t mask = shard->size - 1;
    for (uint32_t at = (hole + 1) & mask; unlikely(entries[at].kind); at = (at + 1) & mask) {
        uint32_t home = hash(entries[at].kind, entries[at].key) & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            entries[hole] = entries[at];
            hole = at;
        }
    }
    entries[hole].kind = 0;
    shard->count--;
}

static inline bool look(enum ledger_kind kind, uint64_t key, struct ledger_entry *entry, bool remove)
{
    uint64_t hashed = hash(kind, key);
    struct shard *shard = shard_of(hashed);
    lock(shard);
    uint32_t at = likely(shard->size) ? position(shard, hashed, kind, key) : 0;
    bool found = shard->size && shard->entries[at].kind;
    if (likely(found)) {
        *entry = shard->entries[at];
        if (remove)
            close_hole(shard, at);
    }
    unlock(shard);
    return found;
}

bool ledger_find(enum ledger_kind kind, uint64_t key, struct ledger_entry *entry)
{
    return look(kind, key, entry, false);
}

bool ledger_remove(enum ledger_kind kind, uint64_t key, struct ledger_entry *entry)
{
    return look(kind, key, entry, true);
}

bool ledger_count(enum ledger_kind kind, uint64_t key, int32_t more, struct ledger_entry *entry)
{
    uint64_t hashed = hash(kind, key);
    struct shard *shard = shard_of(hashed);
    lock(shard);
    uint32_t at = shard->size ? position(shard, hashed, kind, key) : 0;
    bool found = shard->size && shard->entries[at].kind;
    bool last = found && !(shard->entries[at].count += (uint32_t)more);
    if (found)
        *entry = shard->entries[at];
    if (last)
        close_hole(shard, at);
    unlock(shard);
    return last;
}

static bool of_context(const struct ledger_entry *entry, CUcontext context)
{
    bool bound = entry->kind && entry->kind != LEDGER_MAPPING && entry->kind != LEDGER_CONTEXT;
    return bound && context && entry->context == context;
}

void ledger_sweep(CUcontext context, uint64_t freed_bytes[PARTAGE_CARDS])
{
    for (struct shard *shard = shards; shard < shards + SHARDS; shard++) {
        lock(shard);
        for (uint32_t at = 0; at < shard->size;) {
            struct ledger_entry *entry = &shard->entries[at];
            if (!of_context(entry, context)) {
                at++;
                continue;
            }
            if (entry->card >= 0)
                freed_bytes[entry->card] += entry->bytes;
            close_hole(shard, at); /* may move another one here: look again */
        }
        unlock(shard);
    }
}

unsigned ledger_remove_all(enum ledger_kind kind, CUcontext context)
{
    unsigned removed = 0;
    for (struct shard *shard = shards; shard < shards + SHARDS; shard++) {
        lock(shard);
        for (uint32_t at = 0; at < shard->size;) {
            const struct ledger_entry *entry = &shard->entries[at];
            if (entry->kind != kind || entry->context != context) {
                at++;
                continue;
            }
            close_hole(shard, at); /* may move another one here: look again */
            removed++;
        }
        unlock(shard);
    }
    return removed;
}

static bool counts_alone(const struct ledger_entry *entry)
{
    return entry->kind == LEDGER_MEMORY || entry->kind == LEDGER_ARRAY ||
           entry->kind == LEDGER_MIPMAP || entry->kind == LEDGER_CONTEXT ||
           entry->kind == LEDGER_MODULE || entry->kind == LEDGER_LIBRARY ||
           entry->kind == LEDGER_PHYSICAL;
}

uint64_t ledger_bytes(int card)
{
    uint64_t total = 0;
    for (struct shard *shard = shards; shard < shards + SHARDS; shard++) {
        lock(shard);
        for (uint32_t at = 0; at < shard->size; at++)
            if (counts_alone(&shard->entries[at]) && shard->entries[at].card == card)
                total += shard->entries[at].bytes;
        unlock(shard);
    }
    return total;
}

void ledger_visit(enum ledger_kind kind, CUcontext context,
                  void (*each)(struct ledger_entry *, void *), void *with)
{
    for (struct shard *shard = shards; shard < shards + SHARDS; shard++) {
        lock(shard);
        for (uint32_t at = 0; at < shard->size; at++)
            if (shard->entries[at].kind == kind && shard->entries[at].context == context)
                each(&shard->entries[at], with);
        unlock(shard);
    }
}

bool ledger_covering(enum ledger_kind kind, uint64_t address, struct ledger_entry *entry)
{
    bool found = false;
    for (struct shard *shard = shards; !found && shard < shards + SHARDS; shard++) {
        lock(shard);
        for (uint32_t at = 0; !found && at < shard->size; at++) {
            *entry = shard->entries[at];
            found = entry->kind == kind && address - entry->key < entry->bytes;
        }
        unlock(shard);
    }
    return found;
}

void ledger_forget(void)
{
    for (struct shard *shard = shards; shard < shards + SHARDS; shard++) {
        if (shard->entries)
            munmap(shard->entries, shard->size * sizeof *shard->entries);
        memset(shard, 0, sizeof *shard);
    }
}
