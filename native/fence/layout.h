/* Made from native/layout/description.py by `python -m native.layout`; change that one. */
#pragma once
#include <assert.h>
#include <stdint.h>

#define PARTAGE_VERSION 0x2u
#define PARTAGE_CARDS 0x10u
#define PARTAGE_SLOTS 0x400u
#define PARTAGE_SEATS 0x100u
#define PARTAGE_FIRST_SEATS 0x1fu
#define PARTAGE_WHOLE 0xf4240u
#define PARTAGE_LIMITS_MAGIC 0x314d494c47525450ull
#define PARTAGE_REGION_MAGIC 0x3147455247525450ull
#define PARTAGE_SEAT_MAGIC 0x3141455347525450ull
#define PARTAGE_GROUP_LIMITS_MAGIC 0x314c505247525450ull
#define PARTAGE_GROUP_REGION_MAGIC 0x3152505247525450ull
#define PARTAGE_MODE_NONE 0x0u
#define PARTAGE_MODE_FIXED 0x1u
#define PARTAGE_MODE_BURST 0x2u
#define PARTAGE_MODE_BEST_EFFORT 0x3u
#define PARTAGE_ON_FAILURE_CLOSED 0x0u
#define PARTAGE_ON_FAILURE_OPEN 0x1u

/* What the tenant may use of one card. */
struct partage_limits_card {
    uint8_t uuid[16]; /* as CUDA and NVML give it, without the prefix */
    uint64_t memory_bytes; /* quota of all processes of the tenant together */
    uint64_t context_bytes; /* what one context costs on this card, as measured */
    uint32_t mode; /* one of MODES */
    uint32_t share; /* of the card's time, in millionths; guaranteed */
    uint32_t ceiling; /* mode BURST: never above this, in millionths */
    uint32_t paused; /* 1: launches wait until it is 0 again */
    uint32_t seat; /* the number of the tenant's seat at this card */
    uint32_t yields_to; /* a bit for each seat that goes first, see FIRST_SEATS */
};
static_assert(sizeof(struct partage_limits_card) == 56, "no gaps");

/* Written by the node side, mapped read-only by the tenant. */
struct partage_limits {
    uint64_t magic; /* which of the files this is */
    uint32_t version; /* VERSION of the writer */
    uint32_t size; /* of the whole file in bytes */
    uint32_t cards; /* how many of card[] are filled */
    uint32_t on_failure; /* one of ON_FAILURE: what to do when the fence cannot work */
    uint32_t gate; /* not 0: a launch has to look at its card's limits */
    uint32_t reserved; /* 0 */
    struct partage_limits_card card[16];
};
static_assert(sizeof(struct partage_limits) == 928, "no gaps");

/* What the tenant did with one card, over all its processes. */
struct partage_region_card {
    uint64_t peak_bytes; /* most that was in use at once */
    uint64_t refused; /* allocations refused because of the quota */
    uint64_t throttled_ns; /* time that launches waited */
    uint64_t throttled; /* launches that waited */
    uint64_t launches; /* launches that were counted (none in mode NONE) */
    uint64_t busy_ns; /* card time that was charged */
    uint64_t paid_until_ns; /* CLOCK_MONOTONIC until which the share is used up */
    uint64_t paid_share; /* the share that this was reckoned with */
};
static_assert(sizeof(struct partage_region_card) == 64, "no gaps");

/* One process; owned by the one that holds the lock on byte `index` of the file. */
struct partage_region_slot {
    uint64_t owner; /* drawn anew at each attach; 0: free */
    int32_t pid; /* in the process's own pid namespace */
    uint32_t group; /* the number of its group; 0: none */
};
static_assert(sizeof(struct partage_region_slot) == 16, "no gaps");

/* Written by the tenant's processes. */
struct partage_region {
    uint64_t magic; /* which of the files this is */
    uint32_t version; /* VERSION of the writer */
    uint32_t size; /* of the whole file in bytes */
    uint32_t slots_used; /* no slot at or above this was ever taken */
    uint32_t reserved[11]; /* 0; up to a cache line */
    struct partage_region_card card[16];
    struct partage_region_slot slot[1024];
    uint64_t used_bytes[16][1024]; /* by card, then by slot: what each process has */
    uint64_t additions[16]; /* by card: raised after used_bytes grew, before a sum */
};
static_assert(sizeof(struct partage_region) == 148672, "no gaps");

/* What the other tenants of a card may know of one. */
struct partage_seat {
    uint64_t magic; /* which of the files this is */
    uint32_t version; /* VERSION of the writer */
    uint32_t size; /* of the whole file in bytes */
    uint8_t uuid[16]; /* of the card */
    uint64_t launches; /* raised before each launch */
    uint64_t charged_ns; /* card time of all launches */
    uint64_t finished_ns; /* of those that are known to be done */
    uint64_t active_until_ns; /* CLOCK_MONOTONIC at which the rest should be done */
    uint64_t wanted_ns; /* CLOCK_MONOTONIC at which it last wanted others to wait */
    uint64_t reserved[3]; /* 0 */
};
static_assert(sizeof(struct partage_seat) == 96, "no gaps");

/* What a group may use of one card of its tenant. */
struct partage_group_limits_card {
    uint64_t memory_bytes; /* quota of all processes of the group together */
    uint32_t share; /* of the card's time, in millionths, at most; 0: the tenant's */
    uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct partage_group_limits_card) == 16, "no gaps");

/* Written by the node side, mapped read-only by the group. */
struct partage_group_limits {
    uint64_t magic; /* which of the files this is */
    uint32_t version; /* VERSION of the writer */
    uint32_t size; /* of the whole file in bytes */
    uint32_t number; /* of the group, not 0; its slots have it */
    uint32_t reserved; /* 0 */
    struct partage_group_limits_card card[16]; /* in the order of the tenant's limits */
};
static_assert(sizeof(struct partage_group_limits) == 280, "no gaps");

/* What a group did with one card, over all its processes. */
struct partage_group_region_card {
    uint64_t peak_bytes; /* most that was in use at once */
    uint64_t refused; /* allocations refused because of a quota */
    uint64_t paid_until_ns; /* CLOCK_MONOTONIC until which the share is used up */
    uint64_t reserved; /* 0 */
};
static_assert(sizeof(struct partage_group_region_card) == 32, "no gaps");

/* Written by the group's processes. */
struct partage_group_region {
    uint64_t magic; /* which of the files this is */
    uint32_t version; /* VERSION of the writer */
    uint32_t size; /* of the whole file in bytes */
    struct partage_group_region_card card[16];
};
static_assert(sizeof(struct partage_group_region) == 528, "no gaps");
