/* NVML in this process: its look at the machine, and how a call enters it. */
#pragma once

#include "common/queue.h"
#include "nvml/api.h"

extern struct attachment nvml;

/* NVML_SUCCESS while the library is open and the driver is there. */
nvmlReturn_t library_state(void);

/* The card of a handle, if it is one and has not fallen off the bus. */
nvmlReturn_t device_card(nvmlDevice_t device, struct card **card);

unsigned card_index(const struct card *card);
const struct card_facts *card_facts(const struct card *card);
nvmlDevice_t device_of_card(unsigned index);
void pci_info(unsigned index, nvmlPciInfo_t *pci);

/* Copy a text out; NVML_ERROR_INSUFFICIENT_SIZE if there is no room for it. */
nvmlReturn_t answer_text(char *out, unsigned bytes, const char *text);

#define ENTER()                                 \
    do {                                        \
        nvmlReturn_t state_ = library_state();  \
        if (state_)                             \
            return state_;                      \
    } while (0)

#define ENTER_CARD(found, device)                        \
    ENTER();                                             \
    struct card *found;                                  \
    nvmlReturn_t refused_ = device_card(device, &found); \
    if (refused_)                                        \
        return refused_

#define REQUIRE(condition, error) \
    do {                          \
        if (!(condition))         \
            return error;         \
    } while (0)

#define REQUIRE_ARGUMENT(condition) REQUIRE(condition, NVML_ERROR_INVALID_ARGUMENT)
