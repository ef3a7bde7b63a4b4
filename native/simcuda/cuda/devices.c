/* The cards that this process sees: which they are, what they are called, what they have. */
#include "cuda/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/identity.h"
#include "cuda/pools.h"

static struct device devices[CARDS_MAX];
static int device_count;

int devices_find(void)
{
    unsigned chosen[CARDS_MAX];
    struct machine *machine = driver.here.machine;
    device_count = (int)visible_cards(getenv("CUDA_VISIBLE_DEVICES"), &driver.here, chosen);
    for (int i = 0; i < device_count; i++)
        devices[i] = (struct device){
            .ordinal = i,
            .card = &machine->cards[chosen[i]],
            .facts = &machine->facts.cards[chosen[i]],
            .pci_bus = pci_bus_of_card(chosen[i]),
        };
    return device_count;
}

int devices_count(void)
{
    return device_count;
}

struct device *device_find(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < device_count ? &devices[ordinal] : 0;
}

CUresult device_health(const struct device *device)
{
    return device->card->lost ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
}

CUresult device_usable(const struct device *device)
{
    return device->card->reset_needed ? CUDA_ERROR_DEVICE_UNAVAILABLE : device_health(device);
}

bool device_take(struct device *device, uint64_t bytes)
{
    return card_reserve(&driver.here, device->card, bytes);
}

CUresult device_reserve(struct device *device, uint64_t bytes)
{
    if (device_take(device, bytes))
        return CUDA_SUCCESS;
    pools_shrink(device, true);
    return device_take(device, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void device_release(struct device *device, uint64_t bytes)
{
    card_release(&driver.here, device->card, bytes);
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER();
    REQUIRE_VALUE(count);
    *count = device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER_DEVICE(found, ordinal);
    REQUIRE_VALUE(device);
    *device = found->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(name && len > 0);
    snprintf(name, (size_t)len, "%s", device->facts->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(uuid);
    memcpy(uuid->bytes, device->facts->uuid, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(bytes);
    *bytes = device->facts->memory_bytes;
    return CUDA_SUCCESS;
}

/* Versions 1 of sizes have 32 bits: what does not fit is told as the most that does. */
CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(bytes);
    *bytes = (unsigned)earlier(device->facts->memory_bytes, UINT32_MAX);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(major && minor);
    *major = (int)device->facts->capability / 10;
    *minor = (int)device->facts->capability % 10;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(pciBusId && len > 0);
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", device->pci_bus);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    ENTER();
    REQUIRE_VALUE(dev && pciBusId);
    int bus = pci_bus_of_text(pciBusId);
    for (int i = 0; i < device_count; i++) {
        if (bus < 0 || devices[i].pci_bus != (unsigned)bus)
            continue;
        *dev = i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev)
{
    ENTER_DEVICE(device, dev);
    REQUIRE_VALUE(pi && device);
    (void)type;
    *pi = 0;
    return CUDA_SUCCESS;
}
