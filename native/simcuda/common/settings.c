/*
 * Environment and configuration file.
 *
 * A file is named by SIMCUDA_CONFIG. It has lines `key = value`, comments after `#`, and one
 * section `[card]` for each card. A variable of the environment wins over the same key of the file.
 *
 *   key            variable               default          meaning
 *   cards          SIMCUDA_CARDS          16GiB            "2x16GiB", "8GiB,24GiB", "8GiB:Tesla T4"
 *   driver         SIMCUDA_DRIVER         615.71           driver version
 *   cuda           SIMCUDA_CUDA           13.4             CUDA version of the driver
 *   sms            SIMCUDA_SMS            108              multiprocessors of each card
 *   capability     SIMCUDA_CAPABILITY     8.0              compute capability of each card
 *   memory_limits  SIMCUDA_MEMORY_LIMITS  1                0: a driver without limits per cgroup
 *   context_mib    SIMCUDA_CONTEXT_MIB    256              device memory that a context costs
 *   pool_mib       SIMCUDA_POOL_MIB       2                steps in which pools take device memory
 *   kernel_us      SIMCUDA_KERNEL_US      10               duration of a kernel
 *   kernel_us.NAME SIMCUDA_KERNEL_US_NAME                  duration of the kernel NAME
 *   state          SIMCUDA_STATE          /dev/shm/simcuda-<uid>
 *   nodes          SIMCUDA_NODES                           only cards with a node nvidia<minor> in
 *                                                          this folder are seen
 *
 * In a section `[card]`: memory (16GiB), model, uuid (GPU-...), sms, capability.
 *
 * Facts of the machine must be the same for all its processes; context_mib, pool_mib, kernel_us and
 * nodes are each process' own. A process that is told no facts takes the machine as it finds it.
 */
#include "common/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cards_text.h"
#include "common/keys.h"

struct duration {
    struct duration *next;
    uint64_t ns;
    char kernel[];
};

static const char *set_duration(struct settings *settings, const char *kernel, const char *value)
{
    struct duration *duration = malloc(sizeof *duration + strlen(kernel) + 1);
    if (!duration)
        return "no memory is left";
    strcpy(duration->kernel, kernel);
    duration->next = settings->durations;
    settings->durations = duration;
    return parse_us(value, &duration->ns) ? 0 : settings_wrong("kernel_us", value);
}

static const char *file_key(struct settings *settings, bool in_card, const char *name,
                            const char *value)
{
    if (!in_card && !strncmp(name, "kernel_us.", 10))
        return set_duration(settings, name + 10, value);
    for (const struct key *key = in_card ? CARD_KEYS : KEYS; key->name; key++)
        if (!strcmp(key->name, name))
            return key_set(settings, key, value);
    return settings_wrong("a key", name);
}

static char *trimmed(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return text;
}

static const char *file_line(struct settings *settings, bool *in_card, char *line)
{
    char *value = strchr(line, '=');
    if (!*line)
        return 0;
    if (!strcmp(line, "[card]")) {
        bool room = card_append(&settings->facts, *in_card);
        settings->facts_given = *in_card = true;
        return room ? 0 : "there are too many cards in the configuration file";
    }
    if (!value)
        return settings_wrong("a line", line);
    *value++ = 0;
    return file_key(settings, *in_card, trimmed(line), trimmed(value));
}

static const char *read_file(struct settings *settings, const char *path)
{
    char *line = 0;
    size_t room = 0;
    bool in_card = false;
    const char *failed = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return settings_wrong("SIMCUDA_CONFIG", path);
    while (!failed && getline(&line, &room, file) > 0) {
        line[strcspn(line, "#")] = 0;
        failed = file_line(settings, &in_card, trimmed(line));
    }
    free(line);
    fclose(file);
    return failed;
}

/* Durations are asked for by the names of kernels, late: a wrong one is to be told at once. */
static const char *check_durations(void)
{
    static const char prefix[] = "SIMCUDA_KERNEL_US_";
    uint64_t ns;
    for (char **entry = environ; *entry; entry++) {
        const char *value = strncmp(*entry, prefix, sizeof prefix - 1) ? 0 : strchr(*entry, '=');
        if (value && value[1] && !parse_us(value + 1, &ns))
            return settings_wrong("kernel_us", value + 1);
    }
    return 0;
}

/* Two cards with one identity would be one card to those who go by it. */
static const char *check_uuids(const struct facts *facts)
{
    char text[41];
    for (uint32_t i = 0; i < facts->card_count; i++)
        for (uint32_t j = 0; j < i; j++) {
            if (memcmp(facts->cards[i].uuid, facts->cards[j].uuid, sizeof facts->cards[i].uuid))
                continue;
            print_uuid(facts->cards[i].uuid, text);
            return settings_wrong("uuid of a second card", text);
        }
    return 0;
}

static void set_defaults(struct settings *settings)
{
    char path[64];
    *settings = (struct settings){0};
    snprintf(path, sizeof path, "/dev/shm/simcuda-%u", geteuid());
    for (const struct key *key = KEYS; key->name; key++)
        key->set(settings, key->fallback ? key->fallback : path);
}

/* A driver older than 615 knows no limits; cards beyond the last leave no trace. */
static void settle(struct facts *facts)
{
    facts->memory_limits = facts->memory_limits && atoi(facts->driver) >= 615;
    for (uint32_t i = facts->card_count; i < CARDS_MAX; i++)
        facts->cards[i] = (struct card_facts){0};
}

const char *settings_read(struct settings *settings)
{
    const char *path = getenv("SIMCUDA_CONFIG"), *failed = 0;
    set_defaults(settings);
    if (path && *path)
        failed = read_file(settings, path);
    for (const struct key *key = KEYS; !failed && key->name; key++) {
        const char *value = getenv(key->variable);
        if (value && *value)
            failed = key_set(settings, key, value);
    }
    settle(&settings->facts);
    if (!failed)
        failed = check_durations();
    return failed ? failed : check_uuids(&settings->facts);
}

void settings_free(struct settings *settings)
{
    while (settings->durations) {
        struct duration *next = settings->durations->next;
        free(settings->durations);
        settings->durations = next;
    }
    free(settings->path);
    free(settings->nodes);
    settings->path = settings->nodes = 0;
}

uint64_t settings_kernel_ns(const struct settings *settings, const char *kernel)
{
    char variable[256];
    uint64_t ns;
    snprintf(variable, sizeof variable, "SIMCUDA_KERNEL_US_%s", kernel);
    const char *value = getenv(variable);
    if (value && parse_us(value, &ns))
        return ns;
    for (const struct duration *duration = settings->durations; duration; duration = duration->next)
        if (!strcmp(duration->kernel, kernel))
            return duration->ns;
    return settings->kernel_ns;
}
