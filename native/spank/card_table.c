/* The table of cards that `partage slurm prepare` wrote, read strictly: a table that could have been
 * written by somebody else, that is of another boot or has one odd line is no table. */
#define _GNU_SOURCE
#include "spank.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREPARE "run `partage slurm prepare` on the node as root"
#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define FIRST_LINE "partage-slurm-cards 1"
enum { TABLE_BYTES = 64 * 1024, WORDS = 6, BOOT_BYTES = 36 };

static bool read_text(const char *path, char *text, size_t room, bool trusted)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return false;
    bool good = !fstat(file, &about) && S_ISREG(about.st_mode);
    if (good && trusted && (about.st_uid != 0 || about.st_mode & (S_IWGRP | S_IWOTH)))
        good = false, errno = EPERM;
    ssize_t bytes = good ? pread(file, text, room - 1, 0) : -1;
    int error = errno;
    close(file);
    errno = error;
    if (bytes < 0 || (size_t)bytes == room - 1)
        return false;
    text[bytes] = '\0';
    return strlen(text) == (size_t)bytes;
}

static unsigned split(char *line, char *words[WORDS + 1])
{
    unsigned count = 0;
    for (char *rest = line, *word; (word = strsep(&rest, " ")) && count <= WORDS;)
        words[count++] = word;
    return count;
}

static bool number(const char *text, uint64_t most, uint64_t *value)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 10);
    *value = parsed;
    return !errno && !*end && parsed <= most;
}

static int digit(char sign)
{
    const char *digits = "0123456789abcdef", *at = sign ? strchr(digits, sign) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* GPU-00112233-4455-6677-8899-aabbccddeeff */
static bool uuid_parse(const char *text, uint8_t raw[16])
{
    if (strlen(text) != 40 || strncmp(text, "GPU-", 4))
        return false;
    const char *at = text + 4;
    for (int i = 0; i < 16; i++, at += 2) {
        if ((i == 4 || i == 6 || i == 8 || i == 10) && *at++ != '-')
            return false;
        int high = digit(at[0]), low = high < 0 ? -1 : digit(at[1]);
        if (low < 0)
            return false;
        raw[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool parse_card(struct table *table, char *words[], unsigned count)
{
    uint64_t index, shares;
    if (count != 6 || table->cards == TABLE_CARDS)
        return false;
    struct table_card *card = &table->card[table->cards];
    if (!number(words[1], 65535, &index) || !uuid_parse(words[2], card->raw_uuid) ||
        !number(words[3], INT64_MAX, &card->memory_bytes) || !card->memory_bytes ||
        !number(words[4], INT64_MAX, &card->context_bytes) || !number(words[5], 1000000, &shares) ||
        table_find(table, (unsigned)index))
        return false;
    card->number = (unsigned)index;
    card->shares = (unsigned)shares;
    strcpy(card->uuid, words[2]);
    table->cards++;
    return true;
}

static bool copy_path(char place[PATH_BYTES], const char *path)
{
    if (*path != '/' || strlen(path) >= PATH_BYTES)
        return false;
    strcpy(place, path);
    return true;
}

static bool parse_place(struct table *table, char *words[], unsigned count)
{
    if (count != 4 || table->places == TABLE_PLACES)
        return false;
    struct table_place *place = &table->place[table->places];
    if (!copy_path(place->ours, words[1]) || !copy_path(place->target, words[2]) ||
        strchr(words[3], '/') || strlen(words[3]) >= sizeof place->behind)
        return false;
    strcpy(place->behind, words[3]);
    table->places++;
    return true;
}

static bool parse_sharing(struct table *table, const char *word)
{
    table->sharing = strcmp(word, "mps") ? SHARING_SHARD : SHARING_MPS;
    return !strcmp(word, "mps") || !strcmp(word, "shard");
}

static bool parse_line(struct table *table, char *line)
{
    char *words[WORDS + 1];
    unsigned count = split(line, words);
    if (!strcmp(words[0], "card"))
        return parse_card(table, words, count);
    if (!strcmp(words[0], "place"))
        return parse_place(table, words, count);
    if (count != 2)
        return false;
    if (!strcmp(words[0], "sharing"))
        return parse_sharing(table, words[1]);
    if (!strcmp(words[0], "around"))
        return copy_path(table->around, words[1]);
    if (!strcmp(words[0], "preload"))
        return copy_path(table->preload, words[1]);
    return !strcmp(words[0], "library") && copy_path(table->library, words[1]);
}

static bool is_of_this_boot(const char *line)
{
    char boot[BOOT_BYTES + 8];
    if (!line || strncmp(line, "boot ", 5) || !read_text(BOOT_ID, boot, sizeof boot, false))
        return false;
    boot[strcspn(boot, "\n")] = '\0';
    return !strcmp(line + 5, boot);
}

/* The last line says that it is the last: a table that was cut off is none. */
static bool parse_lines(struct table *table, char *rest)
{
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (!strcmp(line, "end"))
            return rest && !*rest && *table->around && *table->preload && *table->library;
        if (!parse_line(table, line))
            return false;
    }
    return false;
}

bool table_read(struct table *table, const char *root, struct problem *problem)
{
    static char text[TABLE_BYTES];
    char path[PATH_BYTES];
    memset(table, 0, sizeof *table);
    errno = 0;
    if (!path_join(path, "%s/cards", root) || !read_text(path, text, sizeof text, true))
        return refuse(problem, "the table of cards %s/cards cannot be read (%s); " PREPARE, root,
                      errno ? strerror(errno) : "it is not what Partage writes");
    char *rest = text, *first = strsep(&rest, "\n");
    if (strcmp(first, FIRST_LINE))
        return refuse(problem, "%s is of another version of Partage than this plugin; " PREPARE, path);
    if (!is_of_this_boot(strsep(&rest, "\n")))
        return refuse(problem, "%s is from before the node was started; " PREPARE, path);
    if (!rest || !parse_lines(table, rest))
        return refuse(problem, "%s is damaged; " PREPARE, path);
    return true;
}

const struct table_card *table_find(const struct table *table, unsigned index)
{
    for (unsigned i = 0; i < table->cards; i++)
        if (table->card[i].number == index)
            return &table->card[i];
    return NULL;
}
