/* Images of code: telling formats apart, and fat binaries, which contain the others. */
#include "cuda/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FATBIN_MAGIC 0xba55ed50u
#define WRAPPER_MAGIC 0x466243b1u

enum { FATBIN_PTX = 1, FATBIN_CUBIN = 2 };

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t payload_bytes;
};

struct fatbin_part {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
};

/* What a program that nvcc compiled passes: a pointer to the fat binary proper. */
struct wrapper {
    uint32_t magic, version;
    const void *fatbin;
};

struct entry *image_add_entry(struct image *image, const char *name, size_t name_bytes)
{
    struct entry *entry = calloc(1, sizeof *entry + name_bytes + 1);
    if (!entry)
        return 0;
    memcpy(entry->name, name, name_bytes);
    entry->next = image->entries;
    image->entries = entry;
    return entry;
}

void image_add_variable(struct image *image, const char *name, size_t name_bytes, size_t bytes)
{
    struct variable *variable = calloc(1, sizeof *variable + name_bytes + 1);
    if (!variable)
        return;
    memcpy(variable->name, name, name_bytes);
    variable->bytes = bytes;
    variable->next = image->variables;
    image->variables = variable;
}

void entry_add_parameter(struct entry *entry, unsigned index, struct parameter parameter)
{
    if (index >= PARAMETERS_MAX)
        return;
    if (index >= entry->parameter_count) {
        struct parameter *more = realloc(entry->parameters, (index + 1) * sizeof *more);
        if (!more)
            return;
        entry->parameters = more;
        entry->parameter_count = index + 1;
    }
    entry->parameters[index] = parameter;
}

static bool is_cubin(const void *data)
{
    return !memcmp(data, "\177ELF", 4);
}

/* Compressed parts begin with neither; then any name may be meant. */
static void read_part(struct image *image, const struct fatbin_part *part)
{
    const char *payload = (const char *)part + part->header_bytes;
    struct image inside = {.entries = image->entries, .variables = image->variables};
    if (part->kind == FATBIN_CUBIN && is_cubin(payload))
        image_read_cubin(&inside, payload);
    else if (part->kind == FATBIN_PTX && !strncmp(payload, "//", 2))
        image_read_ptx(&inside, payload);
    else
        image->opaque = true;
    image->entries = inside.entries;
    image->variables = inside.variables;
}

static CUresult read_fatbin(struct image *image, const struct fatbin *fatbin)
{
    const char *next = (const char *)fatbin + fatbin->header_bytes;
    const char *end = next + fatbin->payload_bytes;
    while (next + sizeof(struct fatbin_part) <= end) {
        const struct fatbin_part *part = (const void *)next;
        if (!part->header_bytes)
            break;
        read_part(image, part);
        next += part->header_bytes + part->payload_bytes;
    }
    image->bytes = fatbin->header_bytes + fatbin->payload_bytes;
    return CUDA_SUCCESS;
}

CUresult image_read(struct image *image, const void *data)
{
    const char *text = data;
    uint32_t magic;
    *image = (struct image){0};
    if (strnlen(text, sizeof magic) < sizeof magic)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&magic, data, sizeof magic);
    if (magic == WRAPPER_MAGIC)
        return read_fatbin(image, ((const struct wrapper *)data)->fatbin);
    if (magic == FATBIN_MAGIC)
        return read_fatbin(image, data);
    return is_cubin(data) ? image_read_cubin(image, data) : image_read_ptx(image, text);
}

char *read_whole_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    char *data = 0;
    size_t got, room = 0;
    *bytes = 0;
    if (!file)
        return 0;
    do {
        char *more = realloc(data, room += 65536);
        if (!more)
            break;
        data = more;
        got = fread(data + *bytes, 1, room - *bytes - 1, file);
        data[*bytes += got] = 0;
    } while (got);
    fclose(file);
    return data;
}

CUresult image_read_file(struct image *image, const char *path)
{
    size_t bytes;
    char *data = read_whole_file(path, &bytes);
    if (!data)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = image_read(image, data);
    free(data);
    return result;
}

static bool comes_again(const struct variable *variable)
{
    for (const struct variable *other = variable->next; other; other = other->next)
        if (!strcmp(other->name, variable->name))
            return true;
    return false;
}

/* A fat binary has the same variables in several forms of its code, of which one is loaded. */
size_t image_cost(const struct image *image)
{
    size_t bytes = image->bytes;
    for (const struct variable *variable = image->variables; variable; variable = variable->next)
        if (!comes_again(variable))
            bytes += variable->bytes;
    return bytes;
}

void image_free(struct image *image)
{
    while (image->entries) {
        struct entry *next = image->entries->next;
        free(image->entries->parameters);
        free(image->entries);
        image->entries = next;
    }
    while (image->variables) {
        struct variable *next = image->variables->next;
        free(image->variables);
        image->variables = next;
    }
}

struct entry *image_entry(struct image *image, const char *name)
{
    for (struct entry *entry = image->entries; entry; entry = entry->next)
        if (!strcmp(entry->name, name))
            return entry;
    return image->opaque ? image_add_entry(image, name, strlen(name)) : 0;
}
