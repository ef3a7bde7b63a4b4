/* Events: waiting for incidents on cards, whichever process raises them. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/health.h"
#include "nvml/library.h"

#define POLL_NS (10 * NS_PER_MS)
#define NO_INSTANCE 0xffffffffu

/* What is waited for on each card, from when on; and how far incidents were looked at. An incident
 * of no card is told to all who wait for its kind on any. */
struct nvmlEventSet_st {
    unsigned long long types[CARDS_MAX + 1];
    uint64_t since[CARDS_MAX + 1];
    uint64_t next;
};

#define SUPPORTED                                                    \
    (nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError | \
     nvmlEventTypeSingleBitEccError)
#define FERMI 20 /* the first architecture that tells events, by its compute capability */

static bool tells_events(const struct card *card)
{
    return card_facts(card)->capability >= FERMI;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    ENTER();
    REQUIRE_ARGUMENT(set);
    *set = calloc(1, sizeof **set);
    REQUIRE(*set, NVML_ERROR_MEMORY);
    (*set)->next = incident_count(nvml.machine);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    ENTER();
    REQUIRE_ARGUMENT(set);
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(eventTypes);
    *eventTypes = tells_events(card) ? SUPPORTED : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
                                      nvmlEventSet_t set)
{
    ENTER_CARD(card, device);
    REQUIRE_ARGUMENT(set);
    REQUIRE(tells_events(card), NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(!(eventTypes & ~(unsigned long long)SUPPORTED), NVML_ERROR_NOT_SUPPORTED);
    set->types[card_index(card)] |= eventTypes;
    set->since[card_index(card)] = incident_count(nvml.machine);
    set->types[NO_CARD] |= eventTypes;
    return NVML_SUCCESS;
}

static bool wanted(const struct nvmlEventSet_st *set, const struct incident *incident,
                   uint64_t number)
{
    return set->types[incident->card] & incident->type && number >= set->since[incident->card];
}

static bool next_event(struct nvmlEventSet_st *set, nvmlEventData_t *data)
{
    struct incident incident;
    while (set->next < incident_count(nvml.machine)) {
        uint64_t number = set->next++;
        if (!incident_read(nvml.machine, number, &incident) || !wanted(set, &incident, number))
            continue;
        *data = (nvmlEventData_t){
            .device = incident.card == NO_CARD ? 0 : device_of_card(incident.card),
            .eventType = incident.type,
            .eventData = incident.data,
            .gpuInstanceId = NO_INSTANCE,
            .computeInstanceId = NO_INSTANCE,
        };
        return true;
    }
    return false;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    ENTER();
    REQUIRE_ARGUMENT(set && data);
    uint64_t until_ns = now_ns() + timeoutms * NS_PER_MS;
    while (!next_event(set, data)) {
        ENTER(); /* the driver may go while somebody waits */
        uint64_t now = now_ns();
        if (now >= until_ns)
            return NVML_ERROR_TIMEOUT;
        sleep_until(earlier(now + POLL_NS, until_ns));
    }
    return NVML_SUCCESS;
}

/* Callers of version 1 have no room for what came later. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
    nvmlEventData_t whole;
    nvmlReturn_t result = nvmlEventSetWait_v2(set, data ? &whole : 0, timeoutms);
    if (!result)
        memcpy(data, &whole, offsetof(nvmlEventData_t, gpuInstanceId));
    return result;
}
