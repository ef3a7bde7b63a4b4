/* Cards as they are written in settings: counts, sizes, models and identities. */
#include "common/cards_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool parse_bytes(const char *text, uint64_t *bytes)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"GiB", GIB}, {"G", GIB}, {"MiB", MIB}, {"M", MIB}, {"KiB", KIB}, {"", 1}};
    char *unit;
    errno = 0;
    uint64_t number = strtoull(text, &unit, 10);
    if (!isdigit((unsigned char)*text) || errno)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcmp(unit, units[i].name))
            return !__builtin_mul_overflow(number, units[i].bytes, bytes);
    return false;
}

/* Any 32 hexadecimal digits after "GPU-", wherever the dashes are. */
bool parse_uuid(const char *text, uint8_t uuid[16])
{
    unsigned digits = 0;
    if (strncmp(text, "GPU-", 4))
        return false;
    for (text += 4; *text && digits < 32; text++) {
        if (*text == '-')
            continue;
        if (!isxdigit((unsigned char)*text))
            return false;
        unsigned value = isdigit((unsigned char)*text) ? *text - '0' : (*text | 32) - 'a' + 10;
        uuid[digits / 2] = (uint8_t)(digits % 2 ? uuid[digits / 2] << 4 | value : value);
        digits++;
    }
    return digits == 32 && !*text;
}

void print_uuid(const uint8_t uuid[16], char text[41])
{
    text += sprintf(text, "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        text += sprintf(text, "%s%02x", dash ? "-" : "", uuid[i]);
    }
}

/* The same card has the same identity on every run, and any few digits tell two cards apart. */
static void default_uuid(uint32_t index, uint8_t uuid[16])
{
    uint64_t state = index + 1;
    for (int i = 0; i < 16; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        uuid[i] = (uint8_t)(state >> 56);
    }
    uuid[6] = (uuid[6] & 0x0f) | 0x40; /* the marks of a random UUID, RFC 9562 */
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
}

/* Nobody may mistake a simulated card for a real one, whatever model it is to resemble. */
bool card_name(struct card_facts *card, const char *model)
{
    memset(card->name, 0, sizeof card->name);
    int length = snprintf(card->name, sizeof card->name, "Simulated %s", model);
    return *model && length < (int)sizeof card->name;
}

bool card_append(struct facts *facts, bool keep_others)
{
    if (!keep_others)
        facts->card_count = 0;
    if (facts->card_count == CARDS_MAX)
        return false;
    struct card_facts *card = &facts->cards[facts->card_count];
    card->memory_bytes = 16 * GIB;
    card_name(card, "GPU");
    default_uuid(facts->card_count, card->uuid);
    facts->card_count++;
    return true;
}

/* "2x16GiB:Tesla T4" adds two cards. */
static bool parse_group(struct facts *facts, char *text)
{
    unsigned count = 1;
    int length = 0;
    char *model = strchr(text, ':');
    uint64_t bytes;
    if (model)
        *model++ = 0;
    if (sscanf(text, "%ux%n", &count, &length) != 1 || !length)
        count = 1, length = 0;
    if (!parse_bytes(text + length, &bytes) || !bytes)
        return false;
    for (; count; count--) {
        if (!card_append(facts, true))
            return false;
        struct card_facts *card = &facts->cards[facts->card_count - 1];
        card->memory_bytes = bytes;
        if (model && !card_name(card, model))
            return false;
    }
    return true;
}

bool cards_parse(struct facts *facts, const char *text)
{
    char copy[1024], *rest = copy, *group;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return false;
    facts->card_count = 0;
    while ((group = strsep(&rest, ",")))
        if (!parse_group(facts, group))
            return false;
    return facts->card_count > 0;
}
