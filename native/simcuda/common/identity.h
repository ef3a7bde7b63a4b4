/* Where a card sits on the PCI bus: both libraries must say the same. */
#pragma once

#include <stdio.h>

static inline unsigned pci_bus_of_card(unsigned index)
{
    return 0x10 + index;
}

/* The bus of "0000:1A:00.0" or "00000000:1A:00.0"; -1 if it is no such text. */
static inline int pci_bus_of_text(const char *text)
{
    unsigned domain, bus, slot, function = 0;
    int parts = sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
    return parts >= 3 && !domain && !slot && !function ? (int)bus : -1;
}
