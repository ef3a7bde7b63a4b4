/* Physical memory that is created, mapped, retained and shared by handle.
 *
 * The memory exists as long as a handle or a mapping of it does. It has a number here, which its
 * handles and its mappings lead to, and which counts them. Memory that another process created and
 * this one imported is counted from its first mapping on: its creator may end before us. What else
 * may keep memory is in sharing.c. */
#define _GNU_SOURCE
#include "fence.h"
#include <pthread.h>

static pthread_mutex_t physical_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_number;

void physical_forked(void) { pthread_mutex_init(&physical_lock, NULL); }

uint64_t physical_add(int card, uint64_t bytes, uint32_t holders)
{
    struct ledger_entry memory = {.key = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED),
                                  .bytes = bytes,
                                  .card = (int16_t)card,
                                  .kind = LEDGER_PHYSICAL,
                                  .count = holders};
    ledger_add(&memory);
    return memory.key;
}

void physical_drop(uint64_t number, uint32_t holders)
{
    struct ledger_entry memory;
    uint64_t owner = slot_owner();
    if (ledger_count(LEDGER_PHYSICAL, number, -(int32_t)holders, &memory))
        quota_give_of(owner, memory.card, memory.bytes);
}

static void keep(uint64_t number)
{
    struct ledger_entry memory;
    ledger_count(LEDGER_PHYSICAL, number, 1, &memory);
}

uint64_t physical_hold(CUmemHandle handle)
{
    struct ledger_entry entry;
    if (fence_enter() != FENCE_HELD)
        return 0;
    pthread_mutex_lock(&physical_lock);
    bool known = ledger_find(LEDGER_HANDLE, handle, &entry);
    if (known)
        keep(entry.bytes);
    pthread_mutex_unlock(&physical_lock);
    return known ? entry.bytes : 0;
}

int physical_hold_mapped(CUdeviceptr address, uint64_t bytes, uint64_t *numbers, int most)
{
    struct ledger_entry mapping;
    int held = 0;
    if (fence_enter() != FENCE_HELD)
        return 0;
    pthread_mutex_lock(&physical_lock);
    CUdeviceptr end = address + bytes;
    while (address < end && ledger_covering(LEDGER_MAPPING, address, &mapping)) {
        keep(mapping.owner);
        if (held < most)
            numbers[held++] = mapping.owner;
        address = mapping.key + mapping.bytes;
    }
    pthread_mutex_unlock(&physical_lock);
    return held;
}

static void add_handle(uint64_t handle, uint64_t number)
{
    struct ledger_entry entry = {.key = handle, .bytes = number, .kind = LEDGER_HANDLE, .count = 1};
    struct ledger_entry same;
    if (ledger_find(LEDGER_HANDLE, handle, &same) && same.bytes == number)
        entry.count = same.count + 1;
    ledger_add(&entry);
}

CUresult cuMemCreate(CUmemHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    if (state == FENCE_OPEN || !handle || !properties || !on_card(properties->location.type))
        return REAL(cuMemCreate)(handle, bytes, properties, flags);
    struct place place = {.card = card_of_device(properties->location.id)};
    if (place.card == NOT_THERE) /* the driver has its own answer to that */
        return REAL(cuMemCreate)(handle, bytes, properties, flags);
    struct charge charge;
    CUresult result = charge_begin_on(&charge, place, bytes);
    if (result)
        return result;
    pthread_mutex_lock(&physical_lock);
    result = REAL(cuMemCreate)(handle, bytes, properties, flags);
    if (result)
        charge_drop(&charge);
    else
        add_handle(*handle, physical_add(place.card, charge.bytes, 1));
    pthread_mutex_unlock(&physical_lock);
    if (!result)
        quota_taken(place.card);
    return result;
}

CUresult cuMemImportFromShareableHandle(CUmemHandle *handle, void *shared, int type)
{
    CUmemAllocationProp properties;
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    pthread_mutex_lock(&physical_lock);
    CUresult result = REAL(cuMemImportFromShareableHandle)(handle, shared, type);
    if (!result && state == FENCE_HELD &&
        !REAL(cuMemGetAllocationPropertiesFromHandle)(&properties, *handle) &&
        on_card(properties.location.type))
        add_handle(*handle, physical_add(card_of_device(properties.location.id), 0, 1));
    pthread_mutex_unlock(&physical_lock);
    return result;
}

CUresult cuMemRelease(CUmemHandle handle)
{
    struct ledger_entry entry;
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    pthread_mutex_lock(&physical_lock);
    CUresult result = REAL(cuMemRelease)(handle);
    if (!result && ledger_find(LEDGER_HANDLE, handle, &entry)) {
        ledger_count(LEDGER_HANDLE, handle, -1, &entry);
        physical_drop(entry.bytes, 1);
    }
    pthread_mutex_unlock(&physical_lock);
    exports_refresh();
    return result;
}

/* Only imported memory can be mapped larger than it was counted. */
static CUresult begin_mapping(struct charge *more, uint64_t number, uint64_t bytes)
{
    struct ledger_entry memory;
    if (!ledger_find(LEDGER_PHYSICAL, number, &memory) || memory.bytes >= bytes)
        return CUDA_SUCCESS;
    return charge_begin_on(more, (struct place){.card = memory.card}, bytes - memory.bytes);
}

static void end_mapping(struct charge *more, uint64_t number, CUresult result)
{
    struct ledger_entry memory;
    if (result)
        charge_drop(more);
    if (!more->counted || !ledger_find(LEDGER_PHYSICAL, number, &memory))
        return;
    memory.bytes += more->bytes;
    ledger_add(&memory);
    quota_taken(memory.card);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemHandle handle,
                  unsigned long long flags)
{
    struct ledger_entry entry;
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    pthread_mutex_lock(&physical_lock);
    bool ours = state == FENCE_HELD && ledger_find(LEDGER_HANDLE, handle, &entry);
    uint64_t number = ours ? entry.bytes : 0;
    struct charge more = {.counted = false};
    CUresult result = begin_mapping(&more, number, round_up(offset, 1) + round_up(bytes, 1));
    if (!result) {
        result = REAL(cuMemMap)(pointer, bytes, offset, handle, flags);
        end_mapping(&more, number, result);
    }
    if (!result && state == FENCE_HELD) { /* also of what is not counted: see cuMemUnmap */
        struct ledger_entry mapping = {.key = pointer,
                                       .bytes = bytes,
                                       .owner = number,
                                       .kind = LEDGER_MAPPING,
                                       .count = 1};
        ledger_add(&mapping);
        keep(mapping.owner);
    }
    pthread_mutex_unlock(&physical_lock);
    return result;
}

/* One call may undo several mappings that lie side by side. */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    struct ledger_entry mapping;
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    pthread_mutex_lock(&physical_lock);
    CUresult result = REAL(cuMemUnmap)(pointer, bytes);
    for (CUdeviceptr at = pointer, end = pointer + bytes; !result && at < end; at += mapping.bytes) {
        if (!ledger_remove(LEDGER_MAPPING, at, &mapping) || !mapping.bytes)
            break;
        physical_drop(mapping.owner, 1);
    }
    pthread_mutex_unlock(&physical_lock);
    exports_refresh();
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemHandle *handle, void *address)
{
    struct ledger_entry mapping;
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    pthread_mutex_lock(&physical_lock);
    CUresult result = REAL(cuMemRetainAllocationHandle)(handle, address);
    if (!result && state == FENCE_HELD &&
        ledger_covering(LEDGER_MAPPING, (uint64_t)address, &mapping) && mapping.owner) {
        add_handle(*handle, mapping.owner);
        keep(mapping.owner);
    }
    pthread_mutex_unlock(&physical_lock);
    return result;
}
