/* Sickness of cards, and what is told about it. */
#pragma once

#include "common/machine.h"

/* Numbers of NVML's event types. */
enum { INCIDENT_SINGLE_BIT = 0x1, INCIDENT_DOUBLE_BIT = 0x2, INCIDENT_XID = 0x8 };

enum { ROWS_PENDING = 0x1, ROWS_FAILED = 0x2 };

#define XID_FALLEN_OFF_THE_BUS 79
#define NO_CARD CARDS_MAX /* an incident of no card in particular */

/* A card that has failed needs a reset before anybody can use it; one whose program failed does
 * not. */
bool xid_of_application(uint64_t code);

void incident_raise(struct machine *machine, struct incident incident);

/* The incidents raised so far; then each of them by its number, if it is still kept. */
uint64_t incident_count(struct machine *machine);
bool incident_read(struct machine *machine, uint64_t number, struct incident *incident);
