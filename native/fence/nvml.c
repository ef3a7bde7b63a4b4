/* NVML, which monitors and nvidia-smi read: memory and processes of the tenant, as if the card had
 * no others. Processes come from the tenant's own slots, because NVML knows them by pids of the
 * host, which mean nothing in a container. */
#include "fence.h"
#include <string.h>

static bool ready(void) { return nvml_load(NULL); }

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Where there is no fence the driver's answer stands. A card that is not the tenant's has none to
 * give, by whatever way its handle was found. */
static nvmlReturn_t about_another(int card, nvmlReturn_t result, void *answer, size_t bytes)
{
    if (card != NOT_GRANTED)
        return result;
    memset(answer, 0, bytes);
    return NVML_ERROR_NO_PERMISSION;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    if (!ready())
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo)(device, memory);
    int card = result ? NOT_THERE : card_of_handle(device);
    if (card < 0)
        return about_another(card, result, memory, sizeof *memory);
    memory->total = smaller(memory->total, quota_limit(card));
    memory->used = quota_used(card);
    memory->free = free_share(card, memory->free);
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    if (!ready())
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    nvmlReturn_t result = REAL(nvmlDeviceGetMemoryInfo_v2)(device, memory);
    int card = result ? NOT_THERE : card_of_handle(device);
    if (card < 0)
        return about_another(card, result, memory, sizeof *memory);
    memory->total = smaller(memory->total, quota_limit(card));
    memory->reserved = 0;
    memory->used = quota_used(card);
    memory->free = free_share(card, memory->free);
    return result;
}

/* ---- processes ----------------------------------------------------------------------------------- */

static bool process_at(int card, unsigned slot, nvmlProcessInfo_t *process)
{
    uint64_t bytes = __atomic_load_n(&fence_region->used_bytes[card][slot], __ATOMIC_RELAXED);
    if (!bytes || !slot_alive((int)slot))
        return false;
    *process = (nvmlProcessInfo_t){(unsigned)fence_region->slot[slot].pid, bytes, NVML_NO_INSTANCE,
                                   NVML_NO_INSTANCE};
    return true;
}

/* NVML's rule: too small an array is told how large it must be. `infos` may then be NULL. */
static nvmlReturn_t list(int card, unsigned *count, void *infos, bool with_instances)
{
    nvmlProcessInfo_t process;
    unsigned found = 0, room = infos ? *count : 0;
    unsigned slots = __atomic_load_n(&fence_region->slots_used, __ATOMIC_RELAXED);
    for (unsigned slot = 0; slot < slots && slot < PARTAGE_SLOTS; slot++) {
        if (!process_at(card, slot, &process))
            continue;
        if (found < room && with_instances)
            ((nvmlProcessInfo_t *)infos)[found] = process;
        else if (found < room)
            ((nvmlProcessInfo_v1_t *)infos)[found] =
                (nvmlProcessInfo_v1_t){process.pid, process.usedGpuMemory};
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t nobody(int card, unsigned *count, void *infos, bool with_instances)
{
    (void)card, (void)infos, (void)with_instances;
    *count = 0;
    return NVML_SUCCESS;
}

#define PROCESSES(symbol, info, answer, with_instances)                                            \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned *count, info *infos)                         \
    {                                                                                              \
        if (!ready())                                                                              \
            return NVML_ERROR_LIBRARY_NOT_FOUND;                                                   \
        int card = count ? card_of_handle(device) : NOT_THERE;                                     \
        return card == NOT_GRANTED ? NVML_ERROR_NO_PERMISSION                                      \
               : card < 0          ? REAL(symbol)(device, count, infos)                            \
                                   : answer(card, count, infos, with_instances);                   \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, list, false)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, list, true)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, list, true)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, nobody, false)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, nobody, true)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, nobody, true)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, nobody, false)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, nobody, true)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, nobody, true)

static bool is_ours(unsigned pid)
{
    unsigned slots = __atomic_load_n(&fence_region->slots_used, __ATOMIC_RELAXED);
    for (unsigned slot = 0; slot < slots && slot < PARTAGE_SLOTS; slot++)
        if ((unsigned)fence_region->slot[slot].pid == pid && slot_alive((int)slot))
            return true;
    return false;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned *count, unsigned long long since)
{
    if (!ready())
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    if (card_of_handle(device) == NOT_GRANTED)
        return NVML_ERROR_NO_PERMISSION;
    nvmlReturn_t result = REAL(nvmlDeviceGetProcessUtilization)(device, samples, count, since);
    if (result || !samples || card_of_handle(device) < 0)
        return result;
    unsigned kept = 0;
    for (unsigned i = 0; i < *count; i++)
        if (is_ours(samples[i].pid))
            samples[kept++] = samples[i];
    *count = kept;
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_v1_t *info)
{
    if (!ready())
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    if (card_of_handle(device) == NOT_GRANTED)
        return NVML_ERROR_NO_PERMISSION;
    nvmlReturn_t result = REAL(nvmlDeviceGetProcessesUtilizationInfo)(device, info);
    if (result || !info->procUtilArray || card_of_handle(device) < 0)
        return result;
    unsigned kept = 0;
    for (unsigned i = 0; i < info->processSamplesCount; i++)
        if (is_ours(info->procUtilArray[i].pid))
            info->procUtilArray[kept++] = info->procUtilArray[i];
    info->processSamplesCount = kept;
    return result;
}

/* Of confidential computing; others have the lists above. */
nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, void *processes)
{
    if (!ready())
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    return card_of_handle(device) == NOT_THERE
               ? REAL(nvmlDeviceGetRunningProcessDetailList)(device, processes)
               : NVML_ERROR_NOT_SUPPORTED;
}
