/* Sickness of cards, and what is told about it. */
#pragma once

#include "common/machine.h"

enum { INCIDENT_DOUBLE_BIT = 0x2, INCIDENT_XID = 0x8 }; /* numbers of NVML's event types */

#define XID_FALLEN_OFF_THE_BUS 79

void incident_raise(struct machine *machine, struct incident incident);

/* The incidents raised so far; then each of them by its number, if it is still kept. */
uint64_t incident_count(struct machine *machine);
bool incident_read(struct machine *machine, uint64_t number, struct incident *incident);
