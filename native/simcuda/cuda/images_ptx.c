/* PTX: kernels with their parameters, and variables, from the text. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/images.h"

static bool in_comment(const char *text, const char *at)
{
    while (at > text && at[-1] != '\n')
        if (*--at == '/' && at[1] == '/')
            return true;
    return false;
}

static bool ends_with(const char *text, const char *end, const char *word)
{
    size_t bytes = strlen(word);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    return end >= text + bytes && !memcmp(end - bytes, word, bytes);
}

/* The next place where a word stands alone, outside comments; NULL if there is none. */
static const char *find_word(const char *text, const char *from, const char *word)
{
    for (const char *at = from; (at = strstr(at, word)); at++) {
        bool begins = at == text || isspace((unsigned char)at[-1]);
        if (begins && isspace((unsigned char)at[strlen(word)]) && !in_comment(text, at))
            return at;
    }
    return 0;
}

static size_t name_bytes(const char *name)
{
    size_t bytes = 0;
    while (isalnum((unsigned char)name[bytes]) || (name[bytes] && strchr("_$%", name[bytes])))
        bytes++;
    return bytes;
}

/* The size of ".u64" is in its digits, in bits. */
static uint32_t type_bytes(const char *type)
{
    uint32_t bits = (uint32_t)strtoul(type + 2, 0, 10);
    return strchr("bsuf", type[1]) && bits >= 8 && bits <= 128 ? bits / 8 : 0;
}

struct declaration {
    const char *name;
    size_t name_bytes;
    uint32_t align, element_bytes;
    uint64_t count;
};

/* ".param .align 8 .b8 name[16]", up to a comma, a bracket or a semicolon. */
static struct declaration read_declaration(const char *text, const char *end)
{
    struct declaration found = {.count = 1};
    while (text < end) {
        size_t bytes = name_bytes(text);
        if (!strncmp(text, ".align", 6)) {
            text += 6;
            found.align = (uint32_t)strtoul(text, (char **)&text, 10);
        } else if (*text == '.') {
            uint32_t size = type_bytes(text);
            found.element_bytes = size ? size : found.element_bytes;
            text += 1 + name_bytes(text + 1);
        } else if (*text == '[') {
            found.count *= strtoull(text + 1, (char **)&text, 10);
        } else if (bytes && !found.name) {
            found.name = text;
            found.name_bytes = bytes;
            text += bytes;
        } else {
            text++;
        }
    }
    return found;
}

static void read_parameters(struct entry *entry, const char *text)
{
    uint32_t offset = 0;
    const char *close = strchr(text, ')'), *end;
    for (unsigned index = 0; close && text < close; text = end + 1, index++) {
        end = memchr(text, ',', (size_t)(close - text));
        end = end ? end : close;
        struct declaration found = read_declaration(text, end);
        uint32_t align = found.align > found.element_bytes ? found.align : found.element_bytes;
        if (!found.name || !align)
            return;
        offset = (offset + align - 1) / align * align;
        struct parameter parameter = {offset, (uint32_t)(found.element_bytes * found.count)};
        entry_add_parameter(entry, index, parameter);
        offset += parameter.bytes;
    }
}

static void read_entry(struct image *image, const char *name)
{
    name += strspn(name, " \t\r\n");
    size_t bytes = name_bytes(name);
    struct entry *entry = bytes ? image_add_entry(image, name, bytes) : 0;
    const char *open = name + bytes + strspn(name + bytes, " \t\r\n");
    if (entry && *open == '(')
        read_parameters(entry, open + 1);
}

/* ".ptr .global" says where a parameter points to, and declares nothing. */
static void read_variables(struct image *image, const char *text, const char *space)
{
    for (const char *at = text; (at = find_word(text, at, space)); at++) {
        const char *end = at + strcspn(at, ";=");
        if (ends_with(text, at, ".ptr"))
            continue;
        struct declaration found = read_declaration(at + strlen(space), end);
        if (found.name && found.element_bytes)
            image_add_variable(image, found.name, found.name_bytes,
                               found.element_bytes * found.count);
    }
}

CUresult image_read_ptx(struct image *image, const char *text)
{
    const char *word = ".entry";
    for (const char *at = text; (at = find_word(text, at, word)); at++)
        read_entry(image, at + strlen(word));
    read_variables(image, text, ".global");
    read_variables(image, text, ".const");
    image->bytes = strlen(text);
    return find_word(text, text, ".version") || image->entries ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_IMAGE;
}
