/* The keys of the settings: what they are called, what they mean, how they are read. */
#include "common/keys.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cards_text.h"

const char *settings_wrong(const char *key, const char *value)
{
    static char problem[256]; /* settings are read under a lock */
    snprintf(problem, sizeof problem,
             "%s cannot be \"%.128s\"; native/simcuda/README.md has examples", key, value);
    return problem;
}

bool parse_us(const char *text, uint64_t *ns)
{
    char *end;
    double us = strtod(text, &end);
    if (end == text || *end || !(us >= 0 && us < 1e12))
        return false;
    *ns = (uint64_t)(us * 1000 + 0.5);
    return true;
}

static bool parse_count(const char *text, uint32_t *count)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    *count = (uint32_t)number;
    return isdigit((unsigned char)*text) && !*end && number <= UINT32_MAX;
}

/* "13.4" with a factor of 1000 and 10 is 13040, "8.0" with 10 and 1 is 80. */
static bool parse_version(const char *text, uint32_t major, uint32_t minor, uint32_t *version)
{
    unsigned high, low;
    char rest;
    if (sscanf(text, "%u.%u%c", &high, &low, &rest) != 2 || low * minor >= major)
        return false;
    *version = high * major + low * minor;
    return true;
}

static bool set_context(struct settings *settings, const char *value)
{
    uint32_t mib;
    if (!parse_count(value, &mib))
        return false;
    settings->context_bytes = mib * MIB;
    return true;
}

static bool set_pool(struct settings *settings, const char *value)
{
    uint32_t mib;
    if (!parse_count(value, &mib) || !mib)
        return false;
    settings->pool_step_bytes = mib * MIB;
    return true;
}

static bool set_driver(struct settings *settings, const char *value)
{
    struct facts *facts = &settings->facts;
    memset(facts->driver, 0, sizeof facts->driver);
    snprintf(facts->driver, sizeof facts->driver, "%s", value);
    return isdigit((unsigned char)*value) && strlen(value) < sizeof facts->driver;
}

static bool set_cuda(struct settings *settings, const char *value)
{
    return parse_version(value, 1000, 10, &settings->facts.cuda_version);
}

static bool set_limits(struct settings *settings, const char *value)
{
    return parse_count(value, &settings->facts.memory_limits);
}

static bool set_cards(struct settings *settings, const char *value)
{
    return cards_parse(&settings->facts, value);
}

static bool set_kernel(struct settings *settings, const char *value)
{
    return parse_us(value, &settings->kernel_ns);
}

static bool set_state(struct settings *settings, const char *value)
{
    free(settings->path);
    settings->path = strdup(value);
    return *value;
}

static bool set_nodes(struct settings *settings, const char *value)
{
    free(settings->nodes);
    settings->nodes = strdup(value);
    return settings->nodes;
}

static struct card_facts *last_card(struct settings *settings)
{
    return &settings->facts.cards[settings->facts.card_count - 1];
}

/* Outside a section, and from the environment, a property of cards is that of each of them. */
static bool set_sms(struct settings *settings, const char *value)
{
    uint32_t count;
    if (!parse_count(value, &count) || !count)
        return false;
    for (uint32_t i = 0; i < CARDS_MAX; i++)
        settings->facts.cards[i].sm_count = count;
    return true;
}

static bool set_capability(struct settings *settings, const char *value)
{
    uint32_t version;
    if (!parse_version(value, 10, 1, &version))
        return false;
    for (uint32_t i = 0; i < CARDS_MAX; i++)
        settings->facts.cards[i].capability = version;
    return true;
}

static bool set_card_memory(struct settings *settings, const char *value)
{
    struct card_facts *card = last_card(settings);
    return parse_bytes(value, &card->memory_bytes) && card->memory_bytes;
}

static bool set_card_model(struct settings *settings, const char *value)
{
    return card_name(last_card(settings), value);
}

static bool set_card_uuid(struct settings *settings, const char *value)
{
    return parse_uuid(value, last_card(settings)->uuid);
}

static bool set_card_sms(struct settings *settings, const char *value)
{
    struct card_facts *card = last_card(settings);
    return parse_count(value, &card->sm_count) && card->sm_count;
}

static bool set_card_capability(struct settings *settings, const char *value)
{
    return parse_version(value, 10, 1, &last_card(settings)->capability);
}

const struct key KEYS[] = {
    {"cards", "SIMCUDA_CARDS", "16GiB", set_cards, true},
    {"driver", "SIMCUDA_DRIVER", "615.71", set_driver, true},
    {"cuda", "SIMCUDA_CUDA", "13.4", set_cuda, true},
    {"sms", "SIMCUDA_SMS", "108", set_sms, true},
    {"capability", "SIMCUDA_CAPABILITY", "8.0", set_capability, true},
    {"memory_limits", "SIMCUDA_MEMORY_LIMITS", "1", set_limits, true},
    {"context_mib", "SIMCUDA_CONTEXT_MIB", "256", set_context, false},
    {"pool_mib", "SIMCUDA_POOL_MIB", "2", set_pool, false},
    {"kernel_us", "SIMCUDA_KERNEL_US", "10", set_kernel, false},
    {"state", "SIMCUDA_STATE", 0, set_state, false},
    {"nodes", "SIMCUDA_NODES", "", set_nodes, false},
    {0},
};

const struct key CARD_KEYS[] = {
    {"memory", 0, 0, set_card_memory, true},
    {"model", 0, 0, set_card_model, true},
    {"uuid", 0, 0, set_card_uuid, true},
    {"sms", 0, 0, set_card_sms, true},
    {"capability", 0, 0, set_card_capability, true},
    {0},
};

const char *key_set(struct settings *settings, const struct key *key, const char *value)
{
    if (!key->set(settings, value))
        return settings_wrong(key->name, value);
    settings->facts_given |= key->fact;
    return 0;
}
