/* A libnvidia-ml.so.1 as of an old driver, with a card that works, one that has fallen off the bus,
 * one that tells nothing of itself, and one whose processes have no known memory. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
enum { GOOD = 1, GONE, MUTE, VAGUE, CARDS = 4 };

typedef intptr_t device; /* 1 is the first card */

struct memory { unsigned long long total, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned instance, compute; };
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};

int nvmlInitWithFlags(unsigned flags) { return (void)flags, OK; }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int code)
{
    return code == LOST ? "GPU is lost" : code == NOT_SUPPORTED ? "Not Supported" : "Not Found";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    return snprintf(text, size, "470.5"), OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = CARDS, OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found)
{
    *found = (device)index + 1;
    return *found == GONE ? LOST : OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device *found)
{
    return sscanf(uuid, "GPU-%8zx", (size_t *)found) == 1 && *found <= CARDS ? OK : NOT_FOUND;
}

int nvmlDeviceGetUUID(device card, char *text, unsigned size)
{
    if (card == MUTE)
        return NOT_SUPPORTED;
    return snprintf(text, size, "GPU-%08zx-0000-4000-8000-%012zx", (size_t)card, (size_t)card), OK;
}

int nvmlDeviceGetName(device card, char *text, unsigned size)
{
    return snprintf(text, size, "Odd %d", (int)card), OK;
}

int nvmlDeviceGetMemoryInfo(device card, struct memory *memory)
{
    *memory = (struct memory){16ull << 30, 15ull << 30, 1ull << 30};
    return card == MUTE ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetPciInfo_v3(device card, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", 0xA0 + (int)card);
    return card == MUTE ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMinorNumber(device card, unsigned *minor)
{
    return *minor = (unsigned)card + 6, OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(device card, unsigned *count, struct process *found)
{
    if (card == MUTE)
        return NOT_SUPPORTED;
    if (*count < 2)
        return *count = 2, TOO_SMALL;
    *count = 2;
    found[0] = (struct process){20, card == VAGUE ? ~0ull : 300, 0, 0};
    found[1] = (struct process){10, card == VAGUE ? ~0ull : 200, 0, 0};
    return OK;
}

/* The second one also draws; no MPS here, no MIG, no limits, no capability. */
int nvmlDeviceGetGraphicsRunningProcesses_v3(device card, unsigned *count, struct process *found)
{
    if (card != GOOD)
        return NOT_SUPPORTED;
    if (*count < 1)
        return *count = 1, TOO_SMALL;
    *count = 1;
    found[0] = (struct process){10, 250, 0, 0};
    return OK;
}
