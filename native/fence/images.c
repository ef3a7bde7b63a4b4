/* How much an image of code takes at most: itself and its variables.
 *
 * Programs for a card come as PTX, as ELF, or packed (fatbin), which may be compressed. The first
 * two are looked into, since variables that begin as zeros have no bytes there. A file is read
 * once, into memory of our own, and that is what the driver gets: a file may change between our
 * look and the driver's, and a pipe can be read only once. */
#define _GNU_SOURCE
#include "images.h"
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* As they lie in memory. A text image may be shorter than any of them, hence strncmp. */
#define FATBIN "\x50\xED\x55\xBA"
#define FATBIN_WRAPPER "\xB1\x43\x62\x46"

struct fatbin {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t body_bytes;
};
struct fatbin_wrapper {
    uint32_t magic, version;
    const struct fatbin *image;
};

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* With variables that have no bytes in the image because they begin as zeros. */
static uint64_t elf_bytes(const Elf64_Ehdr *elf)
{
    uint64_t bytes = larger(elf->e_shoff + (uint64_t)elf->e_shnum * elf->e_shentsize,
                            elf->e_phoff + (uint64_t)elf->e_phnum * elf->e_phentsize);
    const char *sections = (const char *)elf + elf->e_shoff;
    for (unsigned i = 0; elf->e_shoff && i < elf->e_shnum; i++) {
        const Elf64_Shdr *section = (const void *)(sections + (size_t)i * elf->e_shentsize);
        if (section->sh_type == SHT_NOBITS)
            bytes = larger(bytes, bytes + section->sh_size);
    }
    return bytes;
}

/* By the number in brackets; false: it is none, or too large. An expression is not worked out. */
static bool multiplied(uint64_t *bytes, const char *text)
{
    char *end;
    uint64_t count = strtoull(text, &end, 0);
    while (*end == ' ' || *end == '\t' || *end == 'U')
        end++;
    return *end == ']' && !__builtin_mul_overflow(*bytes, end == text ? 1 : count, bytes);
}

/* Of one declaration such as `.global .align 4 .v2 .b8 name[16][4]`, up to its end. */
static uint64_t declared_bytes(const char *text, const char *end)
{
    uint64_t bytes = 8, width = 1;
    for (; text < end && *text != ';' && *text != '=' && *text != '{'; text++) {
        bool digits = text + 2 < end && text[2] >= '0' && text[2] <= '9';
        if (*text == '.' && strchr("busf", text[1]) && digits)
            bytes = width * ((strtoull(text + 2, NULL, 10) + 7) / 8);
        else if (*text == '.' && text[1] == 'v' && digits)
            width = strtoull(text + 2, NULL, 10);
        else if (*text == '[' && !multiplied(&bytes, text + 1))
            return NEVER_FITS;
    }
    return bytes;
}

/* What goes on before or after it is another word: `ld.global`, `.globally`. */
static bool in_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '$' || c == '%';
}

static uint64_t ptx_bytes(const char *text, size_t length)
{
    static const char word[] = ".global";
    uint64_t bytes = length;
    const char *end = text + length, *at = text;
    while ((at = memmem(at, (size_t)(end - at), word, sizeof word - 1))) {
        bool begins = at == text || !in_word(at[-1]);
        at += sizeof word - 1;
        if (begins && (at == end || !in_word(*at)))
            bytes = larger(bytes, bytes + declared_bytes(at, end));
    }
    return bytes;
}

static bool begins(const void *image, const char *magic)
{
    return !strncmp(image, magic, strlen(magic));
}

struct image image_in_memory(const void *data)
{
    const struct fatbin *fatbin = data;
    if (!data)
        return (struct image){.data = NULL};
    if (begins(data, ELFMAG))
        return (struct image){.data = data, .bytes = elf_bytes(data)};
    if (begins(data, FATBIN_WRAPPER))
        fatbin = ((const struct fatbin_wrapper *)data)->image;
    else if (!begins(data, FATBIN))
        return (struct image){.data = data, .bytes = ptx_bytes(data, strlen(data))};
    uint64_t bytes = fatbin->header_bytes + fatbin->body_bytes;
    return (struct image){.data = data, .bytes = bytes, .packed = true};
}

/* ---- files ----------------------------------------------------------------------------------- */

enum { FIRST_BYTES = 1 << 20 };
static const size_t MOST_BYTES = (size_t)1 << 31;

/* With room for a zero behind what is there: that is where PTX ends. */
static bool has_room(struct image *image, size_t length)
{
    if (length + 1 < image->copied_bytes)
        return true;
    size_t wanted = image->copied_bytes ? image->copied_bytes * 2 : FIRST_BYTES;
    void *copy = image->copied_bytes
                     ? mremap(image->copy, image->copied_bytes, wanted, MREMAP_MAYMOVE)
                     : mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wanted > MOST_BYTES || copy == MAP_FAILED)
        return false;
    image->copy = copy;
    image->copied_bytes = wanted;
    return true;
}

static CUresult read_all(int file, struct image *image, size_t *length)
{
    ssize_t more;
    *length = 0;
    do {
        if (!has_room(image, *length))
            return CUDA_ERROR_OUT_OF_MEMORY;
        more = read(file, image->copy + *length, image->copied_bytes - *length - 1);
        *length += more > 0 ? (size_t)more : 0;
    } while (more > 0 || (more < 0 && errno == EINTR));
    return more < 0 ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_SUCCESS;
}

/* In memory whoever made the image answers for what its numbers lead to; here nobody does. */
static bool lies_within(const Elf64_Ehdr *elf, size_t length)
{
    return length >= sizeof *elf && elf->e_shoff <= length &&
           (elf->e_shentsize >= sizeof(Elf64_Shdr) || !elf->e_shnum) &&
           (uint64_t)elf->e_shnum * elf->e_shentsize <= length - elf->e_shoff;
}

static CUresult read_image(const char *path, struct image *image)
{
    size_t length;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = read_all(file, image, &length);
    close(file);
    if (result)
        return result;
    bool sound = begins(image->copy, ELFMAG) ? lies_within((void *)image->copy, length)
                                             : !begins(image->copy, FATBIN_WRAPPER);
    struct image seen = sound ? image_in_memory(image->copy) : (struct image){.data = NULL};
    image->data = seen.data;
    image->bytes = seen.packed ? length : seen.bytes;
    image->packed = seen.packed;
    return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult image_in_file(const char *path, struct image *image)
{
    *image = (struct image){.data = NULL};
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    struct calm calm = calm_begin();
    CUresult result = read_image(path, image);
    if (result)
        image_close(image);
    calm_end(calm);
    return result;
}

void image_close(struct image *image)
{
    if (image->copied_bytes)
        munmap(image->copy, image->copied_bytes);
    image->copied_bytes = 0;
}
