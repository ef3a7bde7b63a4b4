/* What the parts of the fence know of each other.
 *
 *   lookup     how calls reach us: dlsym, cuGetProcAddress
 *   driver     the real driver's functions
 *   attach     the tenant's files: limits, region, seats; what to do when they cannot be used
 *   slots      this process's place in the region, and taking places back from the dead
 *   quota      bytes taken from and given back to the tenant's quota
 *   ledger     what this process has: pointer or handle -> bytes, card, context
 *   charges    one allocation: take, ask the driver, write down or give back
 *   contexts, memory, physical, sharing, arrays, graphs        the wrappers that use memory
 *   code, libraries, images                                    those for code, and what it takes
 *   pools, pooled, pool_lives                                  those whose memory a pool keeps
 *   memory_nodes, graph_memory                                 what graphs do with memory
 *   launches, pacing, costs, kinds, neighbours                 the wrappers that use time
 *   visible, nvml_cards                                        which cards there are
 *   views, nvml                                                what they look like
 *   message, environment                                       what is said to people; its marks
 */
#pragma once
#include "driver.h"
#include "layout.h"
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)
/* All that it calls becomes part of it, but for what is apart: calls were half of the way. */
#define WHOLE __attribute__((flatten))
#define APART __attribute__((noinline))

/* ---- attach ------------------------------------------------------------------------------ */

enum fence_state {
    FENCE_UNKNOWN, /* nothing was looked at yet */
    FENCE_HELD,    /* limits are known and kept */
    FENCE_OPEN,    /* the fence cannot work and was told to let everything pass */
    FENCE_CLOSED,  /* the fence cannot work, so nothing is given */
    FENCE_NO_DRIVER,
};

extern int fence_current;                  /* one of enum fence_state */
extern const struct partage_limits *fence_limits; /* read-only; the node side changes it */
extern struct partage_region *fence_region;
extern struct partage_seat *fence_seats[PARTAGE_CARDS]; /* its own; NULL: none could be had */
extern const struct partage_group_limits *fence_group_limits; /* NULL: the process has no group */
extern struct partage_group_region *fence_group_region;
extern const uint32_t *fence_gate;         /* 0 there: a launch may pass without a look */

APART int fence_attach(void);
bool fence_attach_files(void); /* limits, region and seats alone: NVML needs no CUDA */
int fence_open_seat(int card, unsigned number, int flags);
int fence_open_region(void); /* a descriptor of the region file of one's own, or -1 */
bool fence_is_region(int file);
void fence_seal(const void *start, size_t bytes); /* a mapping that is to stay */
int fence_open_mark(const char *name); /* makes a file in the tenant's folder; -1: errno says why */
void say_once(const char *mark, const char *text); /* a line on stderr */
const char *fence_reason(void); /* why the fence is open or closed, for people */
void fence_break(const char *what, const char *path);
void fence_watch_launches(bool watch); /* while true, none of them passes the gate */

/* FENCE_HELD, or what else to do. */
static inline int fence_enter(void)
{
    int state = __atomic_load_n(&fence_current, __ATOMIC_ACQUIRE);
    return likely(state != FENCE_UNKNOWN) ? state : fence_attach();
}

/* What a call that would take something answers when the fence is not held; says it to people. */
APART CUresult fence_refusal(int state);

/* What is done for the program must not show in it: its errno stays, and a thread that is cancelled
 * meanwhile must not take our locks with it. */
struct calm {
    int cancel_state, error;
};
static inline struct calm calm_begin(void)
{
    struct calm calm = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &calm.cancel_state);
    return calm;
}
static inline void calm_end(struct calm calm)
{
    pthread_setcancelstate(calm.cancel_state, &calm.cancel_state);
    errno = calm.error;
}

/* ---- slots and quota ----------------------------------------------------------------------- */

enum {
    NOT_GRANTED = -1, /* a card of the machine that the tenant has no share of */
    NOT_THERE = -2,   /* no card at all, or not yet: the driver is about to say so */
};

int slot_mine(void); /* this process's slot, taken at the first call; -1: none could be had */
int slot_kept(void); /* the same, without taking one */
uint64_t slot_owner(void); /* changes when the slot was lost and all was counted again */
bool slot_alive(int slot);
APART void slots_reap(void);
void slots_forked(void); /* the child has no memory on any card and needs a slot of its own */

bool quota_take(int card, uint64_t bytes); /* false: over the quota */
void quota_taken(int card); /* and the driver gave it */
void quota_refused(int card); /* counts that somebody was told so */
void quota_give(int card, uint64_t bytes);
/* For what leaves the ledger after `owner` was asked of slot_owner(): if all was counted again since,
 * it may not have been counted any more. */
void quota_give_of(uint64_t owner, int card, uint64_t bytes);
void quota_add(int card, uint64_t bytes); /* what the process has already */
uint64_t quota_added(int card); /* to be said after a slot grew; a number that nobody else gets */
/* As a program is shown them: of its group where that leaves less than the tenant. */
uint64_t quota_used(int card);
uint64_t quota_limit(int card);

/* ---- ledger ---------------------------------------------------------------------------------- */

enum ledger_kind {
    LEDGER_MEMORY = 1,
    LEDGER_POOLED, /* counted with its pool, `context`; once that was destroyed, see `count` */
    LEDGER_ARRAY,
    LEDGER_MIPMAP,
    LEDGER_CONTEXT,
    LEDGER_MODULE,
    LEDGER_LIBRARY, /* card NOT_GRANTED: only known, see libraries.c */
    LEDGER_KERNEL,  /* of such a library, `context` */
    LEDGER_PHYSICAL, /* by a number of ours; kept by `count` handles and mappings, or by what is
                        left of a pool that was destroyed */
    LEDGER_HANDLE,   /* of physical memory; `bytes` is its number */
    LEDGER_MAPPING,  /* of physical memory; `owner` is its number */
    LEDGER_GRAPH, /* executable; `owner` is what it does with memory: see graphs.h */
    LEDGER_KEPT,  /* what a graph left allocated on device `card`: see graph_memory.c */
};

struct ledger_entry {
    uint64_t key, bytes;
    union {
        CUcontext context; /* NULL: of no context */
        uint64_t owner;
    };
    int16_t card;
    uint16_t kind;
    uint32_t count;
};

/* True if the key was there already; what was known of it is then in `stale`. Without memory for a
 * new entry nothing is written down. */
bool ledger_put(const struct ledger_entry *entry, struct ledger_entry *stale);
void ledger_add(const struct ledger_entry *entry);
bool ledger_find(enum ledger_kind kind, uint64_t key, struct ledger_entry *entry);
bool ledger_remove(enum ledger_kind kind, uint64_t key, struct ledger_entry *entry);
/* Adds to an entry's count; true if none is left, and the entry is then removed. */
bool ledger_count(enum ledger_kind kind, uint64_t key, int32_t more, struct ledger_entry *entry);
/* Removes all that belongs to a context, and adds up what that was on each card. */
void ledger_sweep(CUcontext context, uint64_t freed_bytes[PARTAGE_CARDS]);
/* Removes all of that kind and context; returns how many. */
unsigned ledger_remove_all(enum ledger_kind kind, CUcontext context);
/* All that this process has on a card, but for pools and primary contexts. */
uint64_t ledger_bytes(int card);
/* Shows every entry of that kind and context; `each` may change all but kind and key. */
void ledger_visit(enum ledger_kind kind, CUcontext context,
                  void (*each)(struct ledger_entry *, void *), void *with);
/* The first entry of that kind whose [key, key + bytes) holds the address. */
bool ledger_covering(enum ledger_kind kind, uint64_t address, struct ledger_entry *entry);
void ledger_forget(void);

/* ---- contexts and charges -------------------------------------------------------------------- */

struct place {
    CUcontext context; /* NULL: none is current */
    CUdevice device;
    int card;
};

struct place place_current(void);
struct place place_of(CUstream stream); /* of its own context, which need not be current */
int card_of_device(CUdevice device);

struct charge {
    struct place place;
    uint64_t bytes;
    uint64_t owner; /* slot_owner() when it was taken */
    bool counted; /* false: the fence is open, or the driver is about to refuse anyway */
};

enum { WITHOUT_POOL = 2 }; /* `count` of pooled memory whose pool was destroyed; `owner` counts it */
enum { GRAIN_BYTES = 512, PHYSICAL_GRAIN_BYTES = 2 << 20 };
#define NEVER_FITS (1ull << 50) /* more than any card has; keeps sums far from overflow */

static inline uint64_t round_up(uint64_t bytes, uint64_t grain)
{
    return bytes > NEVER_FITS ? NEVER_FITS : (bytes + grain - 1) / grain * grain;
}

/* Take, then ask the driver, then say how it went. `begin` is for the current context's card. */
CUresult charge_begin(struct charge *charge, uint64_t bytes);
CUresult charge_begin_on(struct charge *charge, struct place place, uint64_t bytes);
CUresult charge_end(struct charge *charge, CUresult result, enum ledger_kind kind, uint64_t key);
/* The driver took another size than expected; false: it does not fit, undo it. */
bool charge_settle(struct charge *charge, uint64_t bytes);
void charge_drop(struct charge *charge);
/* The driver's free is `free`; what the ledger knows of the key is given back if it succeeds. */
#define GIVE_BACK(kind, key, free)                                                                 \
    ({                                                                                             \
        struct ledger_entry entry_;                                                                \
        uint64_t owner_ = slot_owner();                                                            \
        bool known_ = fence_enter() == FENCE_HELD && take_out(kind, (uint64_t)(key), &entry_);     \
        CUresult result_ = known_ || driver_load(NULL) ? (free) : CUDA_ERROR_NO_DEVICE;            \
        if (known_)                                                                                \
            given_back(&entry_, result_, owner_);                                                  \
        result_;                                                                                   \
    })
bool take_out(enum ledger_kind kind, uint64_t key, struct ledger_entry *entry);
void given_back(const struct ledger_entry *entry, CUresult result, uint64_t owner);

/* ---- pools and graphs --------------------------------------------------------------------------- */

extern int pools_in_use; /* 0: this process never used a pool or graph memory */
static inline bool pools_used(void) { return __atomic_load_n(&pools_in_use, __ATOMIC_ACQUIRE); }
void pools_press(int card);   /* make room: return what pools keep but do not use */
void pools_refresh(void);     /* count what pools keep now */
void graph_memory_ended(CUdevice device); /* with its primary context */
bool stream_capturing(CUstream stream, bool per_thread);
int capture_mode(int mode); /* of this thread, from now on; returns the one it was in */
void pools_forked(void);
uint64_t physical_add(int card, uint64_t bytes, uint32_t holders); /* returns its number */
void physical_drop(uint64_t number, uint32_t holders); /* after the last, nothing is counted */
uint64_t physical_hold(CUmemHandle handle); /* by something else; its number, 0: not counted */
/* By all that is mapped in that range; returns how many numbers it has written, at most so many. */
int physical_hold_mapped(CUdeviceptr address, uint64_t bytes, uint64_t *numbers, int most);
void exports_refresh(void); /* which exported descriptors are closed? */
void exports_forked(void);
void contexts_forked(void);
void libraries_forked(void);
uint64_t contexts_bytes(int card); /* of primary contexts */
uint64_t pools_bytes(int card);
void physical_forked(void);

enum { UUID_TEXT_BYTES = 41 }; /* "GPU-8-4-4-4-12" */
void uuid_text(const uint8_t bytes[16], char text[UUID_TEXT_BYTES]);
/* The tenant's card, NOT_GRANTED, or NOT_THERE where there is no fence or no answer. */
int card_of_handle(nvmlDevice_t device);
uint64_t free_share(int card, uint64_t card_free_bytes); /* what a view shows as free */

/* ---- time ------------------------------------------------------------------------------------------ */

struct work {
    const void *key; /* function or executable graph: what costs are learned for */
    uint64_t shape;  /* grid and block, since the same function costs more on a larger grid */
    CUstream stream;
    bool per_thread; /* which default stream 0 is */
    /* Filled by pace_before, for pace_after. */
    struct place place; /* of a card only if the launch is counted */
    uint64_t charged_ns;
    bool known;         /* false: nothing at all is known, and nothing was charged */
    uint32_t rate;      /* the part of the card, in millionths, that it was paid with */
    uint64_t told_ns; /* to the neighbours, by this process, up to this launch */
    int sample; /* the measurement that runs around the launch, or -1 */
};

/* Before a launch that may be the first of its kernel; any result but success: do not launch. */
CUresult library_launched(const struct work *work);
/* Waits until the tenant's share allows it. Any result but success: do not launch. */
CUresult pace_before(struct work *work);
void pace_after(struct work *work, CUresult result);
/* A launch on that card turned out to cost so much more, or less, than it was charged. */
int64_t pace_correct(int card, int64_t more_ns, bool was_known, uint32_t rate);

/* Waits for a measurement, if without one nothing is known of this launch. */
void costs_await(const struct work *work);
void costs_price(struct work *work); /* what it will cost: `charged_ns` and `known` */
bool costs_want_quiet(const struct work *work);
void costs_begin(struct work *work, uint64_t now_ns); /* measures some launches, not all */
void costs_end(const struct work *work, CUresult result);
void costs_harvest(void); /* learn from measurements that are done */
void costs_forget_context(CUcontext context);
void costs_forked(void);

/* What the tenants of a card see of each other. */
struct neighbours {
    uint64_t launches; /* of all other tenants */
    uint64_t done_ns;  /* when their queued work should end */
};
struct neighbours neighbours_now(int card);
uint32_t neighbours_leave(int card, uint64_t now_ns); /* share of the card they do not use */
/* Until when those in these seats (`yields_to` of the limits) are to be waited for, if it is after now */
uint64_t neighbours_first(int card, uint32_t seats, uint64_t now_ns);
uint64_t tenant_queue(int card, uint64_t now_ns); /* own work on the card, as long as it should last */
void neighbours_want(int card, uint64_t now_ns); /* others to keep to their shares for a moment */
uint64_t neighbours_tell(int card, uint64_t now_ns, uint64_t cost_ns, bool known);
int64_t neighbours_tell_correction(int card, int64_t more_ns, bool was_known);
void neighbours_tell_finished(int card, uint64_t up_to_ns);
uint64_t tenant_launches(int card); /* of all processes of this tenant; 0 without a seat */

void neighbours_forked(void);

uint64_t now_ns(void);
