/* What can be set on a card, and its errors of memory. */
#include <unistd.h>

#include "common/health.h"
#include "nvml/library.h"

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(mode);
    *mode = (nvmlComputeMode_t)card->compute_mode;
    return NVML_SUCCESS;
}

/* Told to all, and obeyed by nobody: a prohibited card still runs what it is given. */
nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(mode < NVML_COMPUTEMODE_COUNT);
    REQUIRE(!geteuid(), NVML_ERROR_NO_PERMISSION);
    card->compute_mode = mode;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(mode);
    *mode = (nvmlEnableState_t)card->persistence;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(mode <= NVML_FEATURE_ENABLED);
    REQUIRE(!geteuid(), NVML_ERROR_NO_PERMISSION);
    card->persistence = mode;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current,
                                  nvmlEnableState_t *pending)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && current && pending);
    *current = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(card && defaultMode);
    *defaultMode = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

/* All errors there are, are in the device's memory. */
static uint64_t errors_of(const struct card *card, nvmlMemoryErrorType_t type)
{
    return type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED ? card->ecc_errors : card->ecc_corrected;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                         nvmlEccCounterType_t counterType,
                                         unsigned long long *eccCounts)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(eccCounts && errorType < NVML_MEMORY_ERROR_TYPE_COUNT &&
                     counterType < NVML_ECC_COUNTER_TYPE_COUNT);
    *eccCounts = errors_of(card, errorType);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                            nvmlEccCounterType_t counterType,
                                            nvmlEccErrorCounts_t *eccCounts)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(eccCounts && errorType < NVML_MEMORY_ERROR_TYPE_COUNT &&
                     counterType < NVML_ECC_COUNTER_TYPE_COUNT);
    *eccCounts = (nvmlEccErrorCounts_t){.deviceMemory = errors_of(card, errorType)};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                             nvmlEccCounterType_t counterType,
                                             nvmlMemoryLocation_t locationType,
                                             unsigned long long *count)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(count && errorType < NVML_MEMORY_ERROR_TYPE_COUNT &&
                     counterType < NVML_ECC_COUNTER_TYPE_COUNT &&
                     locationType < NVML_MEMORY_LOCATION_COUNT);
    bool in_memory = locationType == NVML_MEMORY_LOCATION_DEVICE_MEMORY;
    *count = in_memory ? errors_of(card, errorType) : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t counterType)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(counterType < NVML_ECC_COUNTER_TYPE_COUNT);
    REQUIRE(!geteuid(), NVML_ERROR_NO_PERMISSION);
    card->ecc_errors = card->ecc_corrected = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows,
                                       unsigned int *uncRows, unsigned int *isPending,
                                       unsigned int *failureOccurred)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(corrRows && uncRows && isPending && failureOccurred);
    *corrRows = *uncRows = 0;
    *isPending = !!(card->rows & ROWS_PENDING);
    *failureOccurred = !!(card->rows & ROWS_FAILED);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                       unsigned int *pageCount, unsigned long long *addresses)
{
    ENTER_CARD(card, device);
    (void)addresses;
    REQUIRE_ARGUMENT(card && pageCount && cause < NVML_PAGE_RETIREMENT_CAUSE_COUNT);
    *pageCount = 0;
    return NVML_SUCCESS;
}
