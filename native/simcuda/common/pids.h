/* Processes by their ids: each pid namespace has its own, and NVML tells those of whoever asks. */
#pragma once

#include "common/machine.h"

/* Write down what this process is called where it runs, and how others can recognise it. */
void pid_tell(struct slot *slot);

/* The id of the process in a slot for whoever asks; 0 if it cannot be seen from here: it is in a pid namespace
 * that is neither ours nor inside ours. */
pid_t pid_seen(const struct machine *machine, unsigned index);
