/* The cards that this process sees. */
#pragma once

#include "cuda/driver.h"

struct pool;

struct device {
    int ordinal;
    struct card *card;
    const struct card_facts *facts;
    unsigned pci_bus;
    unsigned primary_flags;
    struct context *primary;     /* made at its first use; its handle stays the same */
    struct pool *default_pool, *current_pool, *graph_pool;
};

/* Choose the cards as CUDA_VISIBLE_DEVICES says; returns how many there are. */
int devices_find(void);
int devices_count(void);
struct device *device_find(CUdevice ordinal);

/* CUDA_SUCCESS unless the card fell off the bus. */
CUresult device_health(const struct device *device);

/* Whether a context can be made on it: one that needs a reset runs what it has, and nothing new. */
CUresult device_usable(const struct device *device);

/* Device memory: reserved from the card, after unused memory of pools was given back if need be. */
CUresult device_reserve(struct device *device, uint64_t bytes);
bool device_take(struct device *device, uint64_t bytes); /* the same, without that; false: full */
void device_release(struct device *device, uint64_t bytes);

/* Which of the cards it sees a list such as "1,GPU-3f" chooses, in order; NULL chooses all. */
unsigned visible_cards(const char *list, const struct attachment *here,
                       unsigned chosen[CARDS_MAX]);
