/* Contexts: which card work goes to, and what a context itself costs. */
#define _GNU_SOURCE
#include "fence.h"
#include <pthread.h>
#include <string.h>

enum { DEVICES = 64 };

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct charge primary[DEVICES]; /* of each device's primary context; counted: it is there */
static uint32_t generation = 1;        /* raised when a context ends, since handles come again */
static int16_t cards[DEVICES];         /* of each device, plus 2; 0: not looked at yet */

static __thread struct {
    struct place place;
    uint32_t generation;
} last;

static int look_up_card(CUdevice device)
{
    CUuuid uuid;
    CUresult result = HAVE(cuDeviceGetUuid_v2) ? REAL(cuDeviceGetUuid_v2)(&uuid, device)
                                               : REAL(cuDeviceGetUuid)(&uuid, device);
    if (result)
        return result == CUDA_ERROR_NOT_FOUND ? NOT_GRANTED : NOT_THERE;
    for (unsigned card = 0; card < fence_limits->cards; card++)
        if (!memcmp(fence_limits->card[card].uuid, uuid.bytes, sizeof uuid.bytes))
            return (int)card;
    return NOT_GRANTED;
}

/* Only a true answer is remembered: before cuInit there is none. */
int card_of_device(CUdevice device)
{
    if (device < 0 || device >= DEVICES)
        return look_up_card(device);
    int16_t known = __atomic_load_n(&cards[device], __ATOMIC_RELAXED);
    if (known)
        return known - 2;
    int card = look_up_card(device);
    if (card != NOT_THERE)
        __atomic_store_n(&cards[device], (int16_t)(card + 2), __ATOMIC_RELAXED);
    return card;
}

struct place place_current(void)
{
    struct place place = {.card = NOT_GRANTED};
    uint32_t now = __atomic_load_n(&generation, __ATOMIC_ACQUIRE);
    if (REAL(cuCtxGetCurrent)(&place.context) || !place.context)
        return (struct place){.card = NOT_GRANTED};
    if (likely(last.place.context == place.context && last.generation == now))
        return last.place;
    if (REAL(cuCtxGetDevice)(&place.device))
        return (struct place){.card = NOT_GRANTED};
    place.card = card_of_device(place.device);
    last.place = place;
    last.generation = now;
    return place;
}

/* Handles below 8 are the driver's names for the default streams of the current context. */
struct place place_of(CUstream stream)
{
    struct place place = place_current();
    CUcontext context = place.context;
    if ((uintptr_t)stream < 8 || REAL(cuStreamGetCtx)(stream, &context) || context == place.context)
        return place;
    if (!REAL(cuCtxPushCurrent_v2)(context)) {
        place = place_current();
        REAL(cuCtxPopCurrent_v2)(&context);
    }
    return place;
}

static uint64_t context_bytes(int card)
{
    return card < 0 ? 1 : __atomic_load_n(&fence_limits->card[card].context_bytes, __ATOMIC_RELAXED);
}

/* ---- contexts that the program makes ------------------------------------------------------- */

static CUresult begin_context(struct charge *charge, CUdevice device)
{
    int state = fence_enter();
    *charge = (struct charge){.counted = false};
    if (state != FENCE_HELD)
        return state == FENCE_OPEN ? CUDA_SUCCESS : fence_refusal(state);
    struct place place = {.device = device, .card = card_of_device(device)};
    if (place.card == NOT_THERE)
        return CUDA_SUCCESS;
    return charge_begin_on(charge, place, context_bytes(place.card));
}

static CUresult end_context(struct charge *charge, CUresult result, CUcontext *context)
{
    charge->place.context = result ? NULL : *context;
    return charge_end(charge, result, LEDGER_CONTEXT, result ? 0 : (uint64_t)*context);
}

/* Under the lock, as is every end of a context: a new one may get the handle of one that ended, and
 * must not be swept up with it. */
#define CREATE(symbol, parameters, ...)                                                            \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        struct charge charge;                                                                      \
        CUresult result = begin_context(&charge, device);                                          \
        if (result)                                                                                \
            return result;                                                                         \
        pthread_mutex_lock(&contexts_lock);                                                        \
        result = end_context(&charge, REAL(symbol)(context, __VA_ARGS__, device), context);        \
        pthread_mutex_unlock(&contexts_lock);                                                      \
        return result;                                                                             \
    }
CREATE(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device), flags)
CREATE(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device), flags)
CREATE(cuCtxCreate_v3,
       (CUcontext * context, void *affinity, int count, unsigned flags, CUdevice device), affinity,
       count, flags)
CREATE(cuCtxCreate_v4, (CUcontext * context, void *parameters, unsigned flags, CUdevice device),
       parameters, flags)

/* Everything in a context goes with it. */
static void context_ended(CUcontext context)
{
    struct ledger_entry entry;
    uint64_t freed_bytes[PARTAGE_CARDS] = {0}, owner = slot_owner();
    __atomic_add_fetch(&generation, 1, __ATOMIC_ACQ_REL);
    costs_forget_context(context);
    ledger_sweep(context, freed_bytes);
    for (int card = 0; card < (int)PARTAGE_CARDS; card++)
        quota_give_of(owner, card, freed_bytes[card]);
    if (ledger_remove(LEDGER_CONTEXT, (uint64_t)context, &entry))
        quota_give_of(owner, entry.card, entry.bytes);
    pools_refresh();
}

/* Ends a context only if it was the last use: whether it did, its version tells. */
static CUresult detach(CUcontext context, bool *ended)
{
    unsigned version;
    CUresult result = REAL(cuCtxDetach)(context);
    *ended = !result && REAL(cuCtxGetApiVersion)(context, &version);
    return result;
}

#define DESTROY(symbol, call)                                                                      \
    CUresult symbol(CUcontext context)                                                             \
    {                                                                                              \
        if (!driver_load(NULL))                                                                    \
            return CUDA_ERROR_NO_DEVICE;                                                           \
        pthread_mutex_lock(&contexts_lock);                                                        \
        bool ended = true;                                                                         \
        CUresult result = call;                                                                    \
        if (!result && ended && fence_enter() == FENCE_HELD)                                       \
            context_ended(context);                                                                \
        pthread_mutex_unlock(&contexts_lock);                                                      \
        return result;                                                                             \
    }
DESTROY(cuCtxDestroy, REAL(cuCtxDestroy)(context))
DESTROY(cuCtxDestroy_v2, REAL(cuCtxDestroy_v2)(context))
DESTROY(cuCtxDetach, detach(context, &ended))

/* ---- primary contexts ------------------------------------------------------------------------ */

static bool primary_active(CUdevice device)
{
    unsigned flags;
    int active = 0;
    return !REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) && active;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    if (state == FENCE_OPEN || device < 0 || device >= DEVICES)
        return REAL(cuDevicePrimaryCtxRetain)(context, device);
    pthread_mutex_lock(&contexts_lock);
    CUresult result = CUDA_SUCCESS;
    struct charge charge = {.counted = false};
    if (!primary[device].counted && !primary_active(device))
        result = begin_context(&charge, device);
    if (!result)
        result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result) {
        charge_drop(&charge);
    } else if (charge.counted) {
        charge.place.context = *context;
        primary[device] = charge;
        quota_taken(charge.place.card);
    }
    pthread_mutex_unlock(&contexts_lock);
    return result;
}

/* After a release or a reset: has the context gone? Then so has what was in it. */
static void after_release(CUdevice device)
{
    if (fence_enter() != FENCE_HELD || device < 0 || device >= DEVICES ||
        !primary[device].counted || primary_active(device))
        return;
    graph_memory_ended(device);
    context_ended(primary[device].place.context);
    charge_drop(&primary[device]);
}

#define RELEASE(symbol)                                                                            \
    CUresult symbol(CUdevice device)                                                               \
    {                                                                                              \
        if (!driver_load(NULL))                                                                    \
            return CUDA_ERROR_NO_DEVICE;                                                           \
        pthread_mutex_lock(&contexts_lock);                                                        \
        CUresult result = REAL(symbol)(device);                                                    \
        if (!result)                                                                               \
            after_release(device);                                                                 \
        pthread_mutex_unlock(&contexts_lock);                                                      \
        return result;                                                                             \
    }
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)
RELEASE(cuDevicePrimaryCtxReset)
RELEASE(cuDevicePrimaryCtxReset_v2)

uint64_t contexts_bytes(int card)
{
    uint64_t total = 0;
    for (const struct charge *charge = primary; charge < primary + DEVICES; charge++)
        if (charge->counted && charge->place.card == card)
            total += charge->bytes;
    return total;
}

void contexts_forked(void)
{
    pthread_mutex_init(&contexts_lock, NULL);
    memset(primary, 0, sizeof primary);
    memset(cards, 0, sizeof cards);
    generation++;
}
