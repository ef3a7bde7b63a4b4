/* Values by the number of their field. One is simulated: what it takes to recover a card. */
#include <stdlib.h>

#include "nvml/library.h"

#define TELLS_RECOVERY 565 /* the first branch of drivers that does */

static nvmlReturn_t recovery_action(const struct card *card, nvmlFieldValue_t *field)
{
    REQUIRE(atoi(nvml.machine->facts.driver) >= TELLS_RECOVERY, NVML_ERROR_NOT_SUPPORTED);
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.uiVal =
        card->reset_needed ? NVML_GPU_RECOVERY_ACTION_GPU_RESET : NVML_GPU_RECOVERY_ACTION_NONE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
                                      nvmlFieldValue_t *values)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(valuesCount > 0 && values);
    for (nvmlFieldValue_t *field = values; field < values + valuesCount; field++)
        field->nvmlReturn = field->fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
                                ? recovery_action(card, field)
                                : NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
