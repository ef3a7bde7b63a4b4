/* Incidents: a ring that is written by one at a time; its count is stored last. */
#include "common/health.h"

#include <errno.h>
#include <stddef.h>

static void lock(struct machine *machine)
{
    if (pthread_mutex_lock(&machine->incident_mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&machine->incident_mutex); /* at worst one was not counted */
}

bool xid_of_application(uint64_t code)
{
    static const uint64_t codes[] = {13, 31, 43, 45, 68, 109};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i] == code)
            return true;
    return false;
}

void incident_raise(struct machine *machine, struct incident incident)
{
    lock(machine);
    machine->incidents[machine->incident_count % INCIDENTS] = incident;
    __atomic_store_n(&machine->incident_count, machine->incident_count + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&machine->incident_mutex);
}

uint64_t incident_count(struct machine *machine)
{
    return __atomic_load_n(&machine->incident_count, __ATOMIC_ACQUIRE);
}

bool incident_read(struct machine *machine, uint64_t number, struct incident *incident)
{
    lock(machine);
    bool kept = number < machine->incident_count && machine->incident_count - number <= INCIDENTS;
    if (kept)
        *incident = machine->incidents[number % INCIDENTS];
    pthread_mutex_unlock(&machine->incident_mutex);
    return kept;
}
