/* The cards: how they are found, and who they are. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/identity.h"
#include "nvml/library.h"

struct nvmlDevice_st {
    unsigned index;
};

static const struct nvmlDevice_st devices[CARDS_MAX] = {
    {0},  {1},  {2},  {3},  {4},  {5},  {6},  {7},  {8},  {9},  {10},
    {11}, {12}, {13}, {14}, {15}, {16}, {17}, {18}, {19}, {20}, {21},
    {22}, {23}, {24}, {25}, {26}, {27}, {28}, {29}, {30}, {31},
};

nvmlDevice_t device_of_card(unsigned index)
{
    return (nvmlDevice_t)&devices[index];
}

unsigned card_index(const struct card *card)
{
    return (unsigned)(card - nvml.machine->cards);
}

const struct card_facts *card_facts(const struct card *card)
{
    return &nvml.machine->facts.cards[card_index(card)];
}

nvmlReturn_t device_card(nvmlDevice_t device, struct card **card)
{
    for (unsigned i = 0; i < nvml.seen_count; i++) {
        if (device != device_of_card(nvml.seen[i]))
            continue;
        *card = &nvml.machine->cards[nvml.seen[i]];
        return (*card)->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t answer_device(nvmlDevice_t *device, unsigned index)
{
    REQUIRE(!nvml.machine->cards[index].lost, NVML_ERROR_GPU_IS_LOST);
    *device = device_of_card(index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
    ENTER();
    REQUIRE_ARGUMENT(deviceCount);
    *deviceCount = nvml.seen_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
    return nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER();
    REQUIRE_ARGUMENT(device && index < nvml.seen_count);
    return answer_device(device, nvml.seen[index]);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t find_uuid(const uint8_t uuid[16], nvmlDevice_t *device)
{
    for (unsigned i = 0; i < nvml.seen_count; i++)
        if (!memcmp(nvml.machine->facts.cards[nvml.seen[i]].uuid, uuid, 16))
            return answer_device(device, nvml.seen[i]);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    uint8_t bytes[16];
    ENTER();
    REQUIRE_ARGUMENT(uuid && device);
    return parse_uuid(uuid, bytes) ? find_uuid(bytes, device) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device)
{
    uint8_t bytes[16];
    ENTER();
    REQUIRE_ARGUMENT(uuid && device);
    REQUIRE(uuid->version == nvmlUUID_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    if (uuid->type == NVML_UUID_TYPE_BINARY)
        return find_uuid((const uint8_t *)uuid->value.bytes, device);
    return parse_uuid(uuid->value.str, bytes) ? find_uuid(bytes, device) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
    ENTER();
    REQUIRE_ARGUMENT(pciBusId && device);
    int bus = pci_bus_of_text(pciBusId);
    for (unsigned i = 0; i < nvml.seen_count; i++)
        if (bus >= 0 && pci_bus_of_card(nvml.seen[i]) == (unsigned)bus)
            return answer_device(device, nvml.seen[i]);
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    ENTER_CARD(card, device);
    return answer_text(name, length, card_facts(card)->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char text[41];
    ENTER_CARD(card, device);
    print_uuid(card_facts(card)->uuid, text);
    return answer_text(uuid, length, text);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(index);
    for (*index = 0; nvml.seen[*index] != card_index(card); ++*index)
        ; /* whoever has a handle sees the card */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(minorNumber);
    *minorNumber = card_index(card);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    char text[32];
    ENTER_CARD(card, device);
    snprintf(text, sizeof text, "%013u", card_index(card) + 1);
    return answer_text(serial, length, text);
}

#define PCI_DEVICE_ID 0x51310de /* a device that does not exist, of vendor 10de */

void pci_info(unsigned index, nvmlPciInfo_t *pci)
{
    *pci = (nvmlPciInfo_t){
        .bus = pci_bus_of_card(index),
        .pciDeviceId = PCI_DEVICE_ID,
        .pciSubSystemId = PCI_DEVICE_ID,
    };
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(pci);
    pci_info(card_index(card), pci);
    return NVML_SUCCESS;
}

/* Callers of older versions have no room for what came later. */
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlPciInfo_t whole;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, pci ? &whole : 0);
    if (!result)
        memcpy(pci, &whole, offsetof(nvmlPciInfo_t, busId));
    return result;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v2(device, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
    nvmlPciInfo_t info;
    if (!pci)
        return library_state() ? library_state() : NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &info);
    if (result)
        return result;
    REQUIRE(pci->version == nvmlPciInfoExt_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    pci->domain = info.domain;
    pci->bus = info.bus;
    pci->device = info.device;
    pci->pciDeviceId = info.pciDeviceId;
    pci->pciSubSystemId = info.pciSubSystemId;
    pci->baseClass = 3; /* a display controller, 3D */
    pci->subClass = 2;
    memcpy(pci->busId, info.busId, sizeof pci->busId);
    return NVML_SUCCESS;
}
