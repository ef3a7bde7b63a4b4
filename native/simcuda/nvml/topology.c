/*
 * How cards are connected. Two neighbours share a PCI switch, four a host bridge, and others meet
 * beyond the processors. Boards of the form SXM have NVLink besides: two links to the neighbour.
 */
#include <string.h>
#include <unistd.h>

#include "nvml/library.h"

#define LINKS 2 /* of NVLink, to the neighbour */

static nvmlGpuTopologyLevel_t level_between(unsigned one, unsigned other)
{
    if (one == other)
        return NVML_TOPOLOGY_INTERNAL;
    if (one / 2 == other / 2)
        return NVML_TOPOLOGY_SINGLE;
    return one / 4 == other / 4 ? NVML_TOPOLOGY_HOSTBRIDGE : NVML_TOPOLOGY_SYSTEM;
}

static bool is_board(unsigned index)
{
    return index < nvml.machine->facts.card_count &&
           strstr(nvml.machine->facts.cards[index].name, "SXM");
}

static bool linked(unsigned one, unsigned other)
{
    return level_between(one, other) == NVML_TOPOLOGY_SINGLE && is_board(one) && is_board(other);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t *pathInfo)
{
    ENTER_CARD(one, device1);
    struct card *other;
    refused_ = device_card(device2, &other);
    REQUIRE(!refused_, refused_);
    REQUIRE_ARGUMENT(pathInfo);
    *pathInfo = level_between(card_index(one), card_index(other));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *deviceArray)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(count && (deviceArray || !*count));
    unsigned found = 0;
    for (unsigned i = 0; i < nvml.machine->facts.card_count; i++) {
        bool counts = i != card_index(card) && card_seen(&nvml, i);
        if (!counts || level != level_between(i, card_index(card)))
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
    bool reached = !over_nvlink || linked(card_index(one), card_index(other));
    *p2pStatus = reached ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
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

static unsigned neighbour(const struct card *card)
{
    return card_index(card) ^ 1;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *isActive)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(isActive && link < NVML_NVLINK_MAX_LINKS);
    bool active = link < LINKS && linked(card_index(card), neighbour(card));
    *isActive = active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

/* Where a link ends; refused where there is none. */
static nvmlReturn_t linked_card(nvmlDevice_t device, unsigned link, unsigned *other)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(link < LINKS && linked(card_index(card), neighbour(card)));
    *other = neighbour(card);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t *pci)
{
    unsigned other;
    nvmlReturn_t result = linked_card(device, link, &other);
    REQUIRE(!result, result);
    REQUIRE_ARGUMENT(pci);
    return pci_info(other, pci), NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *pNvLinkDeviceType)
{
    unsigned other;
    nvmlReturn_t result = linked_card(device, link, &other);
    REQUIRE(!result, result);
    REQUIRE_ARGUMENT(pNvLinkDeviceType);
    *pNvLinkDeviceType = NVML_NVLINK_DEVICE_TYPE_GPU;
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
