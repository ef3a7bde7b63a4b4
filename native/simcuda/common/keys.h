/* The keys of the settings; settings.c has the list with their meanings. */
#pragma once

#include "common/settings.h"

struct key {
    const char *name, *variable, *fallback;
    bool (*set)(struct settings *settings, const char *value);
    bool fact; /* of the machine, on which all its processes must agree */
};

/* Keys of the file and of the environment, and those inside `[card]`; both end with zeros. */
extern const struct key KEYS[], CARD_KEYS[];

/* Each returns NULL, or a sentence that says what is wrong. */
const char *key_set(struct settings *settings, const struct key *key, const char *value);
const char *settings_wrong(const char *key, const char *value);

bool parse_us(const char *text, uint64_t *ns);
