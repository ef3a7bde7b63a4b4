/* Processes on cards: lists of them, and how busy they keep them. */
#include <stdlib.h>
#include <string.h>

#include "common/usage.h"
#include "nvml/library.h"

#define NO_INSTANCE 0xffffffffu /* MIG is off */
#define LOOK_BACK_MAX_NS NS_PER_S

static struct usage *read_usage(struct card *card, uint64_t window_ns, unsigned *count)
{
    struct usage *usage = malloc(SLOTS * sizeof *usage);
    if (usage)
        *count = card_usage(&nvml, card, window_ns, usage);
    return usage;
}

/* One who asks with too little room is told how much there is; with none, that is no error. */
static nvmlReturn_t make_room(unsigned *room, unsigned count)
{
    bool fits = count <= *room;
    *room = count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/* Versions 2 and 3 are alike; version 1 ends after the memory. */
static nvmlReturn_t list(nvmlDevice_t device, unsigned *room, void *infos, size_t info_bytes)
{
    unsigned count;
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(room && (infos || !*room));
    struct usage *usage = read_usage(card, 0, &count);
    REQUIRE(usage, NVML_ERROR_MEMORY);
    nvmlReturn_t result = make_room(room, count);
    for (unsigned i = 0; !result && i < count; i++) {
        nvmlProcessInfo_t info = {
            .pid = (unsigned)usage[i].pid,
            .usedGpuMemory = usage[i].used_bytes,
            .gpuInstanceId = NO_INSTANCE,
            .computeInstanceId = NO_INSTANCE,
        };
        memcpy((char *)infos + i * info_bytes, &info, info_bytes);
    }
    free(usage);
    return result;
}

static nvmlReturn_t list_none(nvmlDevice_t device, unsigned *room)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && room);
    *room = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
                                                     nvmlProcessInfo_t *infos)
{
    return list(device, infoCount, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
                                                     nvmlProcessInfo_v2_t *infos)
{
    return list(device, infoCount, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return list(device, infoCount, infos, sizeof *infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
                                                      nvmlProcessInfo_t *infos)
{
    (void)infos;
    return list_none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
                                                      nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return list_none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
                                                   nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return list_none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                        unsigned int *infoCount,
                                                        nvmlProcessInfo_t *infos)
{
    (void)infos;
    return list_none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                        unsigned int *infoCount,
                                                        nvmlProcessInfo_v2_t *infos)
{
    (void)infos;
    return list_none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
                                                     nvmlProcessInfo_v1_t *infos)
{
    (void)infos;
    return list_none(device, infoCount);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(utilization);
    utilization->gpu = card_busy_percent(&nvml, card, USAGE_WINDOW_NS);
    utilization->memory = utilization->gpu / 2; /* as good a guess as any */
    return NVML_SUCCESS;
}

/* NVML's time stamps are microseconds of the wall clock. */
static uint64_t look_back_ns(unsigned long long last_seen_us, uint64_t wall_ns)
{
    uint64_t last_seen_ns = last_seen_us * NS_PER_US;
    if (!last_seen_us)
        return USAGE_WINDOW_NS;
    return last_seen_ns < wall_ns ? earlier(wall_ns - last_seen_ns, LOOK_BACK_MAX_NS) : 0;
}

static unsigned keep_busy_ones(struct usage *usage, unsigned count)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++)
        if (usage[i].busy_ns)
            usage[kept++] = usage[i];
    return kept;
}

/* Processes that were busy since the time stamp. */
static nvmlReturn_t read_busy(struct card *card, unsigned long long last_seen_us,
                              struct usage **usage, unsigned *count)
{
    uint64_t window_ns = look_back_ns(last_seen_us, clock_ns(CLOCK_REALTIME));
    *usage = read_usage(card, window_ns, count);
    REQUIRE(*usage, NVML_ERROR_MEMORY);
    *count = keep_busy_ones(*usage, *count);
    return *count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *processSamplesCount,
                                             unsigned long long lastSeenTimeStamp)
{
    struct usage *usage = 0;
    unsigned count;
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(processSamplesCount);
    unsigned room = utilization ? *processSamplesCount : 0;
    nvmlReturn_t result = read_busy(card, lastSeenTimeStamp, &usage, &count);
    if (!result)
        result = make_room(&room, count);
    *processSamplesCount = count;
    for (unsigned i = 0; !result && i < count; i++)
        utilization[i] = (nvmlProcessUtilizationSample_t){
            .pid = (unsigned)usage[i].pid,
            .timeStamp = clock_ns(CLOCK_REALTIME) / NS_PER_US,
            .smUtil = usage_percent(usage[i].busy_ns, usage[i].window_ns),
        };
    free(usage);
    return result;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info)
{
    struct usage *usage = 0;
    unsigned count;
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(info);
    REQUIRE(info->version == nvmlProcessesUtilizationInfo_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    unsigned room = info->procUtilArray ? info->processSamplesCount : 0;
    nvmlReturn_t result = read_busy(card, info->lastSeenTimeStamp, &usage, &count);
    if (!result)
        result = make_room(&room, count);
    info->processSamplesCount = count;
    for (unsigned i = 0; !result && i < count; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .pid = (unsigned)usage[i].pid,
            .timeStamp = clock_ns(CLOCK_REALTIME) / NS_PER_US,
            .smUtil = usage_percent(usage[i].busy_ns, usage[i].window_ns),
        };
    free(usage);
    return result;
}
