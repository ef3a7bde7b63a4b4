/* How cards are connected: all below one host bridge, reaching each other over PCI, no NVLink. */
#include <string.h>
#include <unistd.h>

#include "nvml/library.h"

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t *pathInfo)
{
    ENTER_CARD(one, device1);
    struct card *other;
    refused_ = device_card(device2, &other);
    REQUIRE(!refused_, refused_);
    REQUIRE_ARGUMENT(pathInfo);
    *pathInfo = one == other ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_HOSTBRIDGE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *deviceArray)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(count && (deviceArray || !*count));
    unsigned found = 0;
    for (unsigned i = 0; i < nvml.machine->facts.card_count; i++) {
        if (i == card_index(card) || level != NVML_TOPOLOGY_HOSTBRIDGE)
            continue;
        if (deviceArray && found < *count)
            deviceArray[found] = device_of_card(i);
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    nvmlGpuP2PCapsIndex_t p2pIndex, nvmlGpuP2PStatus_t *p2pStatus)
{
    ENTER_CARD(one, device1);
    struct card *other;
    refused_ = device_card(device2, &other);
    REQUIRE(!refused_, refused_);
    REQUIRE_ARGUMENT(p2pStatus && one != other && p2pIndex < NVML_P2P_CAPS_INDEX_UNKNOWN);
    bool over_nvlink =
        p2pIndex == NVML_P2P_CAPS_INDEX_NVLINK || p2pIndex == NVML_P2P_CAPS_INDEX_ATOMICS;
    *p2pStatus = over_nvlink ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_OK;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *onSameBoard)
{
    ENTER_CARD(one, device1);
    struct card *other;
    refused_ = device_card(device2, &other);
    REQUIRE(!refused_, refused_);
    REQUIRE_ARGUMENT(onSameBoard);
    *onSameBoard = one == other;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *isActive)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && isActive && link < NVML_NVLINK_MAX_LINKS);
    *isActive = NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

/* Every card is near every processor. */
static nvmlReturn_t all_cpus(nvmlDevice_t device, unsigned words, unsigned long *set)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && words && set);
    long count = sysconf(_SC_NPROCESSORS_CONF);
    const unsigned bits = 8 * sizeof *set;
    memset(set, 0, words * sizeof *set);
    for (long i = 0; i < count && (unsigned long)i / bits < words; i++)
        set[(unsigned long)i / bits] |= 1ul << (unsigned long)i % bits;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int cpuSetSize,
                                      unsigned long *cpuSet)
{
    return all_cpus(device, cpuSetSize, cpuSet);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int cpuSetSize,
                                                 unsigned long *cpuSet, nvmlAffinityScope_t scope)
{
    (void)scope;
    return all_cpus(device, cpuSetSize, cpuSet);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int nodeSetSize,
                                         unsigned long *nodeSet, nvmlAffinityScope_t scope)
{
    ENTER_CARD(card, device);
    (void)scope;
    REQUIRE_ARGUMENT(card && nodeSetSize && nodeSet);
    memset(nodeSet, 0, nodeSetSize * sizeof *nodeSet);
    nodeSet[0] = 1;
    return NVML_SUCCESS;
}
