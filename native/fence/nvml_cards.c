/* Which cards NVML shows: the tenant's, in the order of its limits, which is that of CUDA's devices.
 * While the fence cannot work the driver's answers stand. */
#include "fence.h"
#include <stdio.h>
#include <string.h>

void uuid_text(const uint8_t bytes[16], char text[UUID_TEXT_BYTES])
{
    text += sprintf(text, "GPU");
    for (int i = 0; i < 16; i++)
        text += sprintf(text, i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                        bytes[i]);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "GPU-8-4-4-4-12" to its 16 bytes. */
static bool parse_uuid(const char *text, uint8_t bytes[16])
{
    int digits = 0;
    memset(bytes, 0, 16);
    text = strchr(text, '-');
    for (text = text ? text + 1 : ""; *text && digits < 32; text++)
        if (digit(*text) >= 0) {
            bytes[digits / 2] |= (uint8_t)(digit(*text) << (digits % 2 ? 0 : 4));
            digits++;
        }
    return digits == 32;
}

int card_of_handle(nvmlDevice_t device)
{
    char text[96];
    uint8_t uuid[16];
    if (!fence_attach_files() || REAL(nvmlDeviceGetUUID)(device, text, sizeof text) ||
        !parse_uuid(text, uuid))
        return NOT_THERE;
    for (unsigned card = 0; card < fence_limits->cards; card++)
        if (!memcmp(fence_limits->card[card].uuid, uuid, sizeof uuid))
            return (int)card;
    return NOT_GRANTED;
}

#define COUNT(symbol)                                                                              \
    nvmlReturn_t symbol(unsigned *count)                                                           \
    {                                                                                              \
        nvmlReturn_t result = nvml_load(NULL) ? REAL(symbol)(count) : NVML_ERROR_LIBRARY_NOT_FOUND;\
        if (!result && fence_attach_files())                                                       \
            *count = fence_limits->cards;                                                          \
        return result;                                                                             \
    }
COUNT(nvmlDeviceGetCount)
COUNT(nvmlDeviceGetCount_v2)

static nvmlReturn_t beyond_the_last(void)
{
    unsigned count;
    nvmlReturn_t result = REAL(nvmlDeviceGetCount_v2)(&count);
    return result ? result : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t handle_at(unsigned index, nvmlDevice_t *device)
{
    char text[UUID_TEXT_BYTES];
    if (index >= fence_limits->cards)
        return beyond_the_last();
    uuid_text(fence_limits->card[index].uuid, text);
    return REAL(nvmlDeviceGetHandleByUUID)(text, device);
}

#define BY_INDEX(symbol)                                                                           \
    nvmlReturn_t symbol(unsigned index, nvmlDevice_t *device)                                      \
    {                                                                                              \
        if (!nvml_load(NULL))                                                                      \
            return NVML_ERROR_LIBRARY_NOT_FOUND;                                                   \
        return fence_attach_files() ? handle_at(index, device) : REAL(symbol)(index, device);      \
    }
BY_INDEX(nvmlDeviceGetHandleByIndex)
BY_INDEX(nvmlDeviceGetHandleByIndex_v2)

#define BY_NAME(symbol, type)                                                                      \
    nvmlReturn_t symbol(const type *name, nvmlDevice_t *device)                                    \
    {                                                                                              \
        if (!nvml_load(NULL))                                                                      \
            return NVML_ERROR_LIBRARY_NOT_FOUND;                                                   \
        nvmlReturn_t result = REAL(symbol)(name, device);                                          \
        return result || card_of_handle(*device) != NOT_GRANTED ? result : NVML_ERROR_NOT_FOUND;   \
    }
BY_NAME(nvmlDeviceGetHandleByUUID, char)
BY_NAME(nvmlDeviceGetHandleByUUIDV, void)
BY_NAME(nvmlDeviceGetHandleBySerial, char)
BY_NAME(nvmlDeviceGetHandleByPciBusId, char)
BY_NAME(nvmlDeviceGetHandleByPciBusId_v2, char)

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    if (!nvml_load(NULL))
        return NVML_ERROR_LIBRARY_NOT_FOUND;
    nvmlReturn_t result = REAL(nvmlDeviceGetIndex)(device, index);
    int card = result ? NOT_THERE : card_of_handle(device);
    if (card >= 0)
        *index = (unsigned)card;
    return card == NOT_GRANTED ? NVML_ERROR_NO_PERMISSION : result;
}
