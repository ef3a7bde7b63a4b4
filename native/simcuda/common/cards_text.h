/* Cards as they are written in settings: "2x16GiB:Tesla T4". */
#pragma once

#include "common/settings.h"

bool cards_parse(struct facts *facts, const char *text);
bool card_name(struct card_facts *card, const char *model);

/* Begin a card with the defaults of its place; the first one replaces all there were. */
bool card_append(struct facts *facts, bool keep_others);
