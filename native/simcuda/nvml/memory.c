/* Memory of cards, and limits of it for cgroups. */
#include <unistd.h>

#include "common/cgroups.h"
#include "nvml/library.h"

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(memory);
    memory->total = card_facts(card)->memory_bytes;
    memory->used = card_used(&nvml, card);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

/* Nothing is reserved for the system: what the card has can be allocated, to the last byte. */
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(memory);
    REQUIRE(memory->version == nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    memory->total = card_facts(card)->memory_bytes;
    memory->reserved = 0;
    memory->used = card_used(&nvml, card);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1Memory)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && bar1Memory);
    *bar1Memory = (nvmlBAR1Memory_t){256 * MIB, 255 * MIB, 1 * MIB};
    return NVML_SUCCESS;
}

static struct limit *find_limit(struct card *card, uint64_t cgroup)
{
    for (unsigned i = 0; i < card->limits_used; i++)
        if (card->limits[i].cgroup == cgroup)
            return &card->limits[i];
    return 0;
}

static struct limit *free_limit(struct card *card)
{
    struct limit *limit = find_limit(card, 0);
    if (!limit && card->limits_used < LIMITS)
        limit = &card->limits[card->limits_used++];
    return limit;
}

static bool is_no_limit(const nvmlSetMemoryLimits_v1_t *limits)
{
    return !limits->softLimit && limits->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX;
}

/* The cgroup last: until then the place is free, and whoever is killed here has set nothing. */
static nvmlReturn_t write_limit(struct card *card, uint64_t cgroup,
                                const nvmlSetMemoryLimits_v1_t *limits)
{
    struct limit *limit = find_limit(card, cgroup);
    if (is_no_limit(limits)) {
        if (limit)
            limit->cgroup = 0;
        return NVML_SUCCESS;
    }
    limit = limit ? limit : free_limit(card);
    REQUIRE(limit, NVML_ERROR_INSUFFICIENT_RESOURCES);
    limit->soft_bytes = limits->softLimit;
    limit->hard_bytes = limits->hardLimit;
    __atomic_store_n(&limit->cgroup, cgroup, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

static bool limits_fit(const struct card *card, const nvmlSetMemoryLimits_v1_t *limits)
{
    uint64_t total = card_facts(card)->memory_bytes;
    bool hard_fits =
        limits->hardLimit <= total || limits->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX;
    return hard_fits && limits->softLimit <= limits->hardLimit && limits->softLimit <= total;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    ENTER_CARD(card, device);
    REQUIRE(nvml.machine->facts.memory_limits, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE_ARGUMENT(limits && limits->nameSpace && limits_fit(card, limits));
    REQUIRE(!geteuid(), NVML_ERROR_NO_PERMISSION);
    uint64_t cgroup = cgroup_of_path(limits->nameSpace);
    REQUIRE(cgroup, NVML_ERROR_OPERATING_SYSTEM);
    card_lock(card);
    nvmlReturn_t result = write_limit(card, cgroup, limits);
    card_unlock(card);
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    ENTER_CARD(card, device);
    REQUIRE(nvml.machine->facts.memory_limits, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE_ARGUMENT(limits && limits->nameSpace);
    uint64_t cgroup = cgroup_of_path(limits->nameSpace);
    REQUIRE(cgroup, NVML_ERROR_OPERATING_SYSTEM);
    card_lock(card);
    card_sweep_locked(&nvml, card);
    const struct limit *limit = find_limit(card, cgroup);
    if (limit) {
        limits->softLimit = limit->soft_bytes;
        limits->hardLimit = limit->hard_bytes;
        limits->currentUsed = cgroup_used(&nvml, card, cgroup);
    }
    card_unlock(card);
    return limit ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
