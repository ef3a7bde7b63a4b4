/* Limits of device memory for the processes of a cgroup (v2), known by the inode of its folder. */
#pragma once

#include "common/machine.h"

/* The inode of a cgroup's folder, or 0 if it cannot be opened. */
uint64_t cgroup_of_path(const char *path);

/* The cgroup of this process and those around it, innermost first, then zeros. */
void cgroups_of_process(uint64_t cgroups[CGROUP_DEPTH]);

bool slot_in_cgroup(const struct slot *slot, uint64_t cgroup);

/* With the card's mutex held: memory of live processes in a cgroup, and room below all limits. */
uint64_t cgroup_used(const struct attachment *here, const struct card *card, uint64_t cgroup);
bool limits_allow(const struct attachment *here, const struct card *card, uint64_t bytes);
