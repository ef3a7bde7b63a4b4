/*
 * CUDA_VISIBLE_DEVICES, as the real driver reads it: numbers or beginnings of identities; whatever
 * follows a wrong one is not seen; a card named twice makes the whole list empty.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/devices.h"

static int card_by_number(const char *text, const struct attachment *here)
{
    char *end;
    long number = strtol(text, &end, 10);
    bool known = end != text && number >= 0 && number < (long)here->seen_count;
    return known ? (int)here->seen[number] : -1;
}

/* The one card whose identity begins so; -1 if none or several do. */
static int card_by_uuid(const char *text, const struct attachment *here)
{
    int found = -1;
    char uuid[41];
    for (unsigned i = 0; i < here->seen_count; i++) {
        print_uuid(here->machine->facts.cards[here->seen[i]].uuid, uuid);
        if (strncasecmp(uuid, text, strlen(text)))
            continue;
        if (found >= 0)
            return -1;
        found = (int)here->seen[i];
    }
    return found;
}

static int card_by_text(char *text, const struct attachment *here)
{
    while (isspace((unsigned char)*text))
        text++;
    text[strcspn(text, " \t")] = 0;
    return strncmp(text, "GPU-", 4) ? card_by_number(text, here) : card_by_uuid(text, here);
}

static unsigned all_cards(const struct attachment *here, unsigned chosen[CARDS_MAX])
{
    for (unsigned i = 0; i < here->seen_count; i++)
        chosen[i] = here->seen[i];
    return here->seen_count;
}

unsigned visible_cards(const char *list, const struct attachment *here,
                       unsigned chosen[CARDS_MAX])
{
    unsigned count = 0, seen = 0;
    char *copy, *rest, *text;
    if (!list || !(rest = copy = strdup(list)))
        return all_cards(here, chosen);
    while ((text = strsep(&rest, ","))) {
        int card = card_by_text(text, here);
        if (card < 0)
            break;
        if (seen & 1u << card) {
            count = 0;
            break;
        }
        seen |= 1u << card;
        chosen[count++] = (unsigned)card;
    }
    free(copy);
    return count;
}
