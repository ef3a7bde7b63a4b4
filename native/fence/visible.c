/* Which cards CUDA shows: the tenant's, as if the machine had no others.
 *
 * The driver reads CUDA_VISIBLE_DEVICES once, in cuInit, and numbers devices by it in all its
 * functions. So the tenant's cards are told to it in that way, by their identities, in the order of
 * the limits. What the program wrote there is read as on a machine with the tenant's cards alone: 0
 * is the first of them. The variable is another one while cuInit runs, and only then. */
#define _GNU_SOURCE
#include "environment.h"
#include "firsts.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VARIABLE "CUDA_VISIBLE_DEVICES"
#define TOLD "PARTAGE_TOLD_CARDS"
enum { LIST_BYTES = PARTAGE_CARDS * UUID_TEXT_BYTES, SHOWN_BYTES = 200 };

struct list {
    unsigned count;
    uint8_t cards[PARTAGE_CARDS];
    bool refused; /* it names a card that is not the tenant's; what comes after it is not seen */
};

/* The one card whose identity begins so; -1: none, or several. */
static int card_by_uuid(const char *text, size_t length)
{
    char uuid[UUID_TEXT_BYTES];
    int match = -1;
    for (unsigned card = 0; card < fence_limits->cards; card++) {
        uuid_text(fence_limits->card[card].uuid, uuid);
        if (strncasecmp(uuid, text, length))
            continue;
        if (match >= 0)
            return -1;
        match = (int)card;
    }
    return match;
}

static int card_by_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && number >= 0 && number < (long)fence_limits->cards ? (int)number : -1;
}

static bool names_a_card(const char *text)
{
    return isdigit((unsigned char)*text) || !strncmp(text, "GPU-", 4) || !strncmp(text, "MIG-", 4);
}

/* As the driver does: up to the first entry that is none of its cards. */
static struct list read_list(const char *text)
{
    struct list list = {.count = 0};
    for (const char *entry = text; entry && list.count < PARTAGE_CARDS;) {
        entry += strspn(entry, " \t");
        int card = strncmp(entry, "GPU-", 4) ? card_by_number(entry)
                                             : card_by_uuid(entry, strcspn(entry, ", \t"));
        if (card < 0) {
            list.refused = names_a_card(entry);
            break;
        }
        list.cards[list.count++] = (uint8_t)card;
        entry = strchr(entry, ',');
        entry += entry != NULL;
    }
    return list;
}

/* A group may have none of a card of its tenant; its programs may not even be able to open it. */
static struct list all_cards(void)
{
    struct list list = {.count = 0};
    for (unsigned card = 0; card < fence_limits->cards; card++)
        if (!fence_group_limits || fence_group_limits->card[card].memory_bytes)
            list.cards[list.count++] = (uint8_t)card;
    return list;
}

static void write_list(const struct list *list, char text[LIST_BYTES])
{
    strcpy(text, list->count ? "" : "-1"); /* which chooses no card */
    for (unsigned i = 0; i < list->count; i++) {
        text += sprintf(text, i ? "," : "");
        uuid_text(fence_limits->card[list->cards[i]].uuid, text);
        text += strlen(text);
    }
}

static void tell(const char *value)
{
    char text[SHOWN_BYTES * 3], first[UUID_TEXT_BYTES] = "none";
    unsigned cards = fence_limits->cards;
    if (cards)
        uuid_text(fence_limits->card[0].uuid, first);
    snprintf(text, sizeof text,
             "Partage: " VARIABLE "=%.*s names a card that this program has no share of, so CUDA does"
             " not show it. It has %u, counted from 0 (%s%s). Leave the variable alone, or ask for more"
             " with `partage run --cards`.",
             SHOWN_BYTES, value, cards, first, cards > 1 ? ", ..." : "");
    say_once(TOLD, text);
}

static CUresult init_with(char *variable, unsigned flags)
{
    char **before = environ, **list = environment_with(variable);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    environ = list;
    CUresult result = REAL(cuInit)(flags);
    if (environ == list) /* else somebody changed it, and has copied all that was in it */
        environ = before;
    return result;
}

static CUresult init(unsigned flags)
{
    static char variable[sizeof VARIABLE + LIST_BYTES];
    const char *asked = getenv(VARIABLE);
    struct list list = asked ? read_list(asked) : all_cards();
    char *value = variable + sprintf(variable, VARIABLE "=");
    write_list(&list, value);
    CUresult result = asked && !strcmp(asked, value) ? REAL(cuInit)(flags) : init_with(variable, flags);
    if (list.refused)
        tell(asked);
    return result;
}

CUresult cuInit(unsigned flags)
{
    static int initializing; /* see firsts.h */
    static bool done;
    if (fence_enter() != FENCE_HELD || __atomic_load_n(&done, __ATOMIC_ACQUIRE))
        return driver_load(NULL) ? REAL(cuInit)(flags) : CUDA_ERROR_NO_DEVICE;
    struct calm calm = calm_begin();
    first_lock(&initializing);
    CUresult result = init(flags);
    __atomic_store_n(&done, !result, __ATOMIC_RELEASE);
    first_unlock(&initializing);
    calm_end(calm);
    return result;
}
