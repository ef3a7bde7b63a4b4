/* What a job has of each card, as Slurm's controller writes it for a node: "shard:8(IDX:1)" before
 * 23.11, when all is on one card, "shard:a30:20(16/16,4/16)" since then, with a place for each card.
 * It comes from the controller and is read as strictly as the rest. */
#define _GNU_SOURCE
#include "spank.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1000000 };

static bool number(const char **at, unsigned *value)
{
    char *end;
    if (!isdigit((unsigned char)**at))
        return false;
    unsigned long parsed = strtoul(*at, &end, 10);
    *at = end;
    *value = (unsigned)parsed;
    return parsed <= LARGEST;
}

static bool skip(const char **at, const char *text)
{
    size_t bytes = strlen(text);
    if (strncmp(*at, text, bytes))
        return false;
    *at += bytes;
    return true;
}

static bool add(struct allocation *allocation, const struct table *table, unsigned index, unsigned part,
                unsigned whole)
{
    const struct table_card *card = table_find(table, index);
    if (!part)
        return true;
    if (!card || part > whole || allocation->cards == PARTAGE_CARDS || card->shares != whole)
        return false;
    allocation->fraction[allocation->cards++] = (struct fraction){card, part, whole};
    return true;
}

/* 1) */
static bool parse_index(const char **at, const struct table *table, unsigned count,
                        struct allocation *allocation)
{
    unsigned index;
    const struct table_card *card = number(at, &index) ? table_find(table, index) : NULL;
    return card && skip(at, ")") && add(allocation, table, index, count, card->shares);
}

/* 16/16,4/16) */
static bool parse_parts(const char **at, const struct table *table, unsigned count,
                        struct allocation *allocation)
{
    unsigned index = 0, sum = 0, part, whole;
    do {
        if (!number(at, &part) || !skip(at, "/") || !number(at, &whole) ||
            !add(allocation, table, index++, part, whole))
            return false;
        sum += part;
    } while (skip(at, ","));
    return skip(at, ")") && sum == count;
}

/* :a30:20(, or :20( */
static bool parse_count(const char **at, unsigned *count)
{
    const char *open = strchr(*at, '('), *last = open;
    if (!open)
        return false;
    while (last > *at && *--last != ':')
        ;
    *at = last;
    return skip(at, ":") && number(at, count) && skip(at, "(");
}

/* The entry of this resource: names of other resources may end alike. */
static const char *entry_of(const char *text, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += bytes)
        if ((at == text || at[-1] == ',') && at[bytes] == ':')
            return at + bytes;
    return NULL;
}

bool detail_allocation(const char *text, const struct table *table, struct allocation *allocation,
                       struct problem *problem)
{
    unsigned count;
    const char *at = entry_of(text, table->sharing == SHARING_SHARD ? "shard" : "mps");
    *allocation = (struct allocation){0};
    bool good = at && parse_count(&at, &count) &&
                (skip(&at, "IDX:") ? parse_index(&at, table, count, allocation)
                                   : parse_parts(&at, table, count, allocation));
    if (good && allocation->cards)
        return true;
    return refuse(problem, "what Slurm's controller says of the job does not fit the cards of this node "
                           "(%.200s); run `partage slurm prepare` on the node as root", text);
}
