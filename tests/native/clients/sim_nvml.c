/* NVML: how cards are found, what they are asked, and in which versions. */
#include <nvml.h>
#include <stddef.h>
#include <unistd.h>

#include "sim_check.h"

#define UNTOUCHED 0x5a

static nvmlDevice_t card(unsigned index)
{
    nvmlDevice_t device;
    OK(nvmlDeviceGetHandleByIndex(index, &device));
    return device;
}

/* Every user begins and ends for himself; the last one closes the door. */
static void users(void)
{
    unsigned count;
    EXPECT(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount(&count));
    EXPECT(NVML_ERROR_UNINITIALIZED, nvmlShutdown());
    OK(nvmlInit());
    OK(nvmlInitWithFlags(0));
    OK(nvmlShutdown());
    OK(nvmlDeviceGetCount(&count));
    CHECK(count == 2);
    OK(nvmlShutdown());
    EXPECT(NVML_ERROR_UNINITIALIZED, nvmlDeviceGetCount(&count));
}

/* A card has one handle, however it is found: by both libraries' names for it. */
static void handles(void)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], bus[32];
    nvmlDevice_t found;
    OK(nvmlInit());
    for (unsigned i = 0; i < 2; i++) {
        OK(nvmlDeviceGetUUID(card(i), uuid, sizeof uuid));
        OK(nvmlDeviceGetHandleByUUID(uuid, &found));
        CHECK(found == card(i));
        OK(cuDeviceGetPCIBusId(bus, sizeof bus, (CUdevice)i));
        OK(nvmlDeviceGetHandleByPciBusId(bus, &found));
        CHECK(found == card(i));
    }
    CHECK(card(0) != card(1));
    EXPECT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex(2, &found));
    EXPECT(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID("GPU-0", &found));
    EXPECT(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByPciBusId("0000:FF:00.0", &found));
    EXPECT(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByPciBusId("nowhere", &found));
    EXPECT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetUUID((nvmlDevice_t)bus, uuid, sizeof uuid));
    OK(nvmlShutdown());
}

/* A text that does not fit is not begun. */
static void texts(void)
{
    char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    OK(nvmlInit());
    OK(nvmlDeviceGetName(card(0), text, sizeof text));
    unsigned length = (unsigned)strlen(text);
    memset(text, UNTOUCHED, sizeof text);
    EXPECT(NVML_ERROR_INSUFFICIENT_SIZE, nvmlDeviceGetName(card(0), text, length));
    CHECK(text[0] == UNTOUCHED);
    OK(nvmlDeviceGetName(card(0), text, length + 1));
    CHECK(!strncmp(text, "Simulated", 9) && text[length + 1] == UNTOUCHED);
    OK(nvmlDeviceGetSerial(card(1), text, sizeof text));
    OK(nvmlDeviceGetVbiosVersion(card(1), text, sizeof text));
    OK(nvmlSystemGetProcessName((unsigned)getpid(), text, 4));
    CHECK(strlen(text) == 3);
    CHECK(!strcmp(nvmlErrorString(NVML_ERROR_GPU_IS_LOST), "gpu is lost"));
    CHECK(nvmlErrorString((nvmlReturn_t)12345));
    OK(nvmlShutdown());
}

/* The header only declares it for those who ask. */
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci);

/* One who was compiled with an older header has no room for what came later. */
static void versions(void)
{
    unsigned char pci[sizeof(nvmlPciInfo_t)];
    nvmlMemory_v2_t memory = {.version = 1};
    nvmlTemperature_t temperature = {.version = 1};
    OK(nvmlInit());
    memset(pci, UNTOUCHED, sizeof pci);
    OK(nvmlDeviceGetPciInfo_v2(card(0), (nvmlPciInfo_t *)pci));
    CHECK(pci[offsetof(nvmlPciInfo_t, busId)] == UNTOUCHED);
    OK(nvmlDeviceGetPciInfo(card(0), (nvmlPciInfo_t *)pci));
    CHECK(pci[offsetof(nvmlPciInfo_t, busId)] == '0');
    EXPECT(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlDeviceGetMemoryInfo_v2(card(0), &memory));
    EXPECT(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, nvmlDeviceGetTemperatureV(card(0), &temperature));
    OK(nvmlShutdown());
}

/* What is set on a card is told of it, until it is set again. */
static void modes(void)
{
    nvmlComputeMode_t mode;
    nvmlEnableState_t persistence;
    OK(nvmlInit());
    for (int on = 1; !geteuid() && on >= 0; on--) {
        OK(nvmlDeviceSetPersistenceMode(card(0), on ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED));
        OK(nvmlDeviceGetPersistenceMode(card(0), &persistence));
        OK(nvmlDeviceSetComputeMode(card(0), on ? NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
                                                : NVML_COMPUTEMODE_DEFAULT));
        OK(nvmlDeviceGetComputeMode(card(0), &mode));
        CHECK((persistence == NVML_FEATURE_ENABLED) == on);
        CHECK((mode == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS) == on);
    }
    EXPECT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceSetComputeMode(card(0), NVML_COMPUTEMODE_COUNT));
    OK(nvmlShutdown());
}

/* Cards lie below one bridge, near all processors, and reach each other over PCI alone. */
static void topology(void)
{
    nvmlGpuTopologyLevel_t level;
    nvmlGpuP2PStatus_t status;
    nvmlDevice_t nearest[2];
    nvmlEnableState_t active;
    nvmlPciInfo_t pci;
    unsigned count = 2;
    unsigned long cpus[16];
    int same;
    OK(nvmlInit());
    OK(nvmlDeviceGetTopologyCommonAncestor(card(0), card(1), &level));
    CHECK(level == NVML_TOPOLOGY_SINGLE);
    OK(nvmlDeviceGetTopologyNearestGpus(card(0), NVML_TOPOLOGY_SINGLE, &count, nearest));
    CHECK(count == 1 && nearest[0] == card(1));
    OK(nvmlDeviceGetTopologyNearestGpus(card(0), NVML_TOPOLOGY_HOSTBRIDGE, &count, nearest));
    CHECK(count == 0);
    OK(nvmlDeviceGetP2PStatus(card(0), card(1), NVML_P2P_CAPS_INDEX_READ, &status));
    CHECK(status == NVML_P2P_STATUS_OK);
    OK(nvmlDeviceGetP2PStatus(card(0), card(1), NVML_P2P_CAPS_INDEX_NVLINK, &status));
    CHECK(status == NVML_P2P_STATUS_NOT_SUPPORTED);
    OK(nvmlDeviceOnSameBoard(card(0), card(1), &same));
    CHECK(!same);
    OK(nvmlDeviceGetNvLinkState(card(0), 0, &active));
    CHECK(active == NVML_FEATURE_DISABLED);
    EXPECT(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetNvLinkRemotePciInfo(card(0), 0, &pci));
    OK(nvmlDeviceGetCpuAffinity(card(0), 16, cpus));
    CHECK(cpus[0] & 1);
    OK(nvmlShutdown());
}

/* A list of processes is written only if there is room for all of it. */
static void processes(void)
{
    nvmlProcessInfo_t infos[4];
    nvmlProcessUtilizationSample_t samples[4];
    unsigned count = 0;
    OK(nvmlInit());
    EXPECT(NVML_ERROR_INSUFFICIENT_SIZE,
           nvmlDeviceGetComputeRunningProcesses(card(0), &count, NULL));
    CHECK(count == 1);
    OK(nvmlDeviceGetComputeRunningProcesses(card(0), &count, infos));
    CHECK(count == 1 && infos[0].pid == (unsigned)getpid() && infos[0].usedGpuMemory > 0);
    count = 4;
    OK(nvmlDeviceGetComputeRunningProcesses(card(1), &count, infos));
    CHECK(count == 0);
    OK(nvmlDeviceGetGraphicsRunningProcesses(card(0), &count, infos));
    CHECK(count == 0);
    count = 4;
    EXPECT(NVML_ERROR_NOT_FOUND, nvmlDeviceGetProcessUtilization(card(0), samples, &count, 0));
    OK(nvmlShutdown());
}

static void events(void)
{
    nvmlEventSet_t set;
    nvmlEventData_t data;
    unsigned long long types;
    OK(nvmlInit());
    OK(nvmlDeviceGetSupportedEventTypes(card(0), &types));
    CHECK(types & nvmlEventTypeXidCriticalError);
    OK(nvmlEventSetCreate(&set));
    OK(nvmlDeviceRegisterEvents(card(0), types, set));
    EXPECT(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceRegisterEvents(card(0), nvmlEventTypeClock, set));
    EXPECT(NVML_ERROR_TIMEOUT, nvmlEventSetWait(set, &data, 1));
    OK(nvmlEventSetFree(set));
    OK(nvmlShutdown());
}

static const struct area AREAS[] = {
    {"users", users},
    {"handles", handles},
    {"texts", texts},
    {"versions", versions},
    {"modes", modes},
    {"topology", topology},
    {"processes", processes},
    {"events", events},
};

int main(int count, char **names)
{
    return run_areas(AREAS, COUNT(AREAS), count, names);
}
