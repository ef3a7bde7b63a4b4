/* The state file: making it, opening it, and the locks on its bytes. */
#pragma once

#include "common/machine.h"

/* Bytes of the file that are locked for something else than a slot; none of them is ever read. */
enum { BYTE_ENTRANCE = SLOTS, BYTE_ONLOOKERS };

/* A byte of the file is locked with its lowest offset, whatever the file has there. */
bool byte_lock(int fd, off_t byte, short type, bool wait);
bool bytes_locked_by_others(int fd, off_t first, off_t count);

/* Make a new machine; over an existing file only if it is to be replaced. 0 or -1 and errno. */
int state_make(const struct settings *settings, bool replace);

/* Room on the disk for what the process of a slot writes; false and errno if there is none. */
bool slot_reserve(int fd, uint32_t card_count, unsigned slot);

/* Is the open file still the one that the path names? */
bool state_current(int fd, const char *path);
