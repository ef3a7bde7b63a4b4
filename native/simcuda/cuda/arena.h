/* Addresses for device memory. Bytes are the host's, and take memory only once they are touched. */
#pragma once

#include <stddef.h>

/* Room for that many bytes, aligned to at least a page; NULL if the host has none. */
void *arena_take(size_t bytes);
void arena_give(void *start, size_t bytes);

/* Addresses of version 1 of the API have 32 bits. */
void *arena_take_low(size_t bytes);
void arena_give_low(void *start, size_t bytes);
