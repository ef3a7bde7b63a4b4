/* What never changes on a simulated card: plausible numbers, for those who ask for them. */
#include "nvml/library.h"

/* A function with one result, which is always the same. */
#define ALWAYS(function, type, value)                    \
    nvmlReturn_t function(nvmlDevice_t device, type *out) \
    {                                                    \
        ENTER_CARD(card, device);                        \
        REQUIRE_ARGUMENT(card && out);                   \
        *out = value;                                    \
        return NVML_SUCCESS;                             \
    }

ALWAYS(nvmlDeviceGetBrand, nvmlBrandType_t, NVML_BRAND_NVIDIA)
ALWAYS(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
ALWAYS(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
ALWAYS(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, 4)
ALWAYS(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, 4)
ALWAYS(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
ALWAYS(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 4)
ALWAYS(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
ALWAYS(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
ALWAYS(nvmlDeviceGetPcieSpeed, unsigned int, 16000)
ALWAYS(nvmlDeviceGetPcieLinkMaxSpeed, unsigned int, NVML_PCIE_LINK_MAX_SPEED_16000MBPS)
ALWAYS(nvmlDeviceGetFanSpeed, unsigned int, 30)
ALWAYS(nvmlDeviceGetNumFans, unsigned int, 1)
ALWAYS(nvmlDeviceGetPerformanceState, nvmlPstates_t, NVML_PSTATE_0)
ALWAYS(nvmlDeviceGetPowerState, nvmlPstates_t, NVML_PSTATE_0)
ALWAYS(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 0)
ALWAYS(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 0)
ALWAYS(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, 0)
ALWAYS(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
ALWAYS(nvmlDeviceGetPowerManagementLimit, unsigned int, 250000)
ALWAYS(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, 250000)
ALWAYS(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 250000)
ALWAYS(nvmlDeviceGetPowerUsage, unsigned int, 60000)
ALWAYS(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 1000000)
ALWAYS(nvmlDeviceGetBusType, nvmlBusType_t, NVML_BUS_TYPE_PCIE)
ALWAYS(nvmlDeviceGetMemoryBusWidth, unsigned int, 5120)
ALWAYS(nvmlDeviceGetIrqNum, unsigned int, 64)
ALWAYS(nvmlDeviceGetBoardId, unsigned int, 0x100)
ALWAYS(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
ALWAYS(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 0)
ALWAYS(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
ALWAYS(nvmlDeviceGetAccountingMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
ALWAYS(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t,
       NVML_GPU_VIRTUALIZATION_MODE_NONE)
ALWAYS(nvmlDeviceGetNumaNodeId, unsigned int, 0)
ALWAYS(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, NVML_FEATURE_DISABLED)
ALWAYS(nvmlDeviceGetNumGpuCores, unsigned int, card_facts(card)->sm_count * 64)

static unsigned clock_mhz(nvmlClockType_t type)
{
    return type == NVML_CLOCK_MEM ? 1593 : 1410;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && clock && type < NVML_CLOCK_COUNT);
    *clock = clock_mhz(type);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                       unsigned int *clock)
{
    return nvmlDeviceGetClockInfo(device, type, clock);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                            unsigned int *clockMHz)
{
    return nvmlDeviceGetClockInfo(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                nvmlClockId_t clockId, unsigned int *clockMHz)
{
    (void)clockId;
    return nvmlDeviceGetClockInfo(device, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && !fan && speed);
    *speed = 30;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType,
                                      unsigned int *temp)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && sensorType == NVML_TEMPERATURE_GPU && temp);
    *temp = 40;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && temperature);
    REQUIRE(temperature->version == nvmlTemperature_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE_ARGUMENT(temperature->sensorType == NVML_TEMPERATURE_GPU);
    temperature->temperature = 40;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t thresholdType,
                                               unsigned int *temp)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && thresholdType < NVML_TEMPERATURE_THRESHOLD_COUNT && temp);
    *temp = 90;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                          unsigned int *minLimit,
                                                          unsigned int *maxLimit)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && minLimit && maxLimit);
    *minLimit = 100000;
    *maxLimit = 250000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                         unsigned int *value)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && counter < NVML_PCIE_UTIL_COUNT && value);
    *value = 0;
    return NVML_SUCCESS;
}

static nvmlReturn_t idle_engine(nvmlDevice_t device, unsigned *utilization, unsigned *period_us)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && utilization && period_us);
    *utilization = 0;
    *period_us = 200000;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned int *utilization,
                                             unsigned int *samplingPeriodUs)
{
    return idle_engine(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned int *utilization,
                                             unsigned int *samplingPeriodUs)
{
    return idle_engine(device, utilization, samplingPeriodUs);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    ENTER_CARD(card, device);
    (void)card;
    return answer_text(version, length, "00.00.00.00.00");
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode,
                                  unsigned int *pendingMode)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && currentMode && pendingMode);
    *currentMode = *pendingMode = NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *migDevice)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && migDevice);
    (void)index;
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(major && minor);
    *major = (int)card_facts(card)->capability / 10;
    *minor = (int)card_facts(card)->capability % 10;
    return NVML_SUCCESS;
}

/* Architectures follow from compute capabilities. */
static nvmlDeviceArchitecture_t architecture(uint32_t capability)
{
    static const struct {
        uint32_t capability;
        nvmlDeviceArchitecture_t architecture;
    } since[] = {{100, NVML_DEVICE_ARCH_BLACKWELL}, {90, NVML_DEVICE_ARCH_HOPPER},
                 {89, NVML_DEVICE_ARCH_ADA},        {80, NVML_DEVICE_ARCH_AMPERE},
                 {75, NVML_DEVICE_ARCH_TURING},     {70, NVML_DEVICE_ARCH_VOLTA},
                 {60, NVML_DEVICE_ARCH_PASCAL},     {50, NVML_DEVICE_ARCH_MAXWELL}};
    for (size_t i = 0; i < sizeof since / sizeof since[0]; i++)
        if (capability >= since[i].capability)
            return since[i].architecture;
    return NVML_DEVICE_ARCH_KEPLER;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(arch);
    *arch = architecture(card_facts(card)->capability);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(attributes);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = card_facts(card)->sm_count,
        .sharedCopyEngineCount = 2,
        .memorySizeMB = card_facts(card)->memory_bytes / MIB,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    return nvmlDeviceGetAttributes_v2(device, attributes);
}
