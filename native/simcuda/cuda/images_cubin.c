/* Cubins: ELF files of the GPU. Kernels and variables are symbols; parameters have a section. */
#include <elf.h>
#include <string.h>

#include "cuda/images.h"

#define EM_OF_CUDA 190
#define SYMBOL_IS_KERNEL 0x10 /* in st_other */

/* Items of .nv.info sections begin with these; those we look for have their size in two bytes. */
enum { ITEM_WITH_SIZE = 4, ITEM_PARAMETER = 0x17, ITEM_BYTES = 4 };

struct item {
    uint8_t format, attribute;
    uint16_t bytes;
};

struct parameter_item {
    uint32_t index;
    uint16_t ordinal, offset;
    uint32_t size; /* bytes, from bit 18 on */
};

struct cubin {
    const char *data;
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
    const char *names;
};

static const void *section_data(const struct cubin *cubin, const Elf64_Shdr *section)
{
    return cubin->data + section->sh_offset;
}

static size_t size_of(const struct cubin *cubin)
{
    const Elf64_Ehdr *header = cubin->header;
    size_t end = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
    size_t segments_end = header->e_phoff + (size_t)header->e_phnum * header->e_phentsize;
    end = end > segments_end ? end : segments_end;
    for (int i = 0; i < header->e_shnum; i++) {
        const Elf64_Shdr *section = &cubin->sections[i];
        size_t section_end = section->sh_offset + section->sh_size;
        if (section->sh_type != SHT_NOBITS && section_end > end)
            end = section_end;
    }
    return end;
}

static void read_symbol(struct image *image, const Elf64_Sym *symbol, const char *names)
{
    const char *name = names + symbol->st_name;
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if (type == STT_FUNC && symbol->st_other & SYMBOL_IS_KERNEL)
        image_add_entry(image, name, strlen(name));
    else if (type == STT_OBJECT && symbol->st_size && *name)
        image_add_variable(image, name, strlen(name), symbol->st_size);
}

static void read_symbols(struct image *image, const struct cubin *cubin)
{
    for (int i = 0; i < cubin->header->e_shnum; i++) {
        const Elf64_Shdr *section = &cubin->sections[i];
        if (section->sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbols = section_data(cubin, section);
        const char *names = section_data(cubin, &cubin->sections[section->sh_link]);
        for (size_t s = 0; s < section->sh_size / sizeof *symbols; s++)
            read_symbol(image, &symbols[s], names);
    }
}

static void read_item(struct entry *entry, const char *data)
{
    struct parameter_item item;
    memcpy(&item, data, sizeof item);
    entry_add_parameter(entry, item.ordinal, (struct parameter){item.offset, item.size >> 18});
}

static void read_items(struct entry *entry, const char *data, const char *end)
{
    struct item item;
    while (data + ITEM_BYTES <= end) {
        memcpy(&item, data, ITEM_BYTES);
        data += ITEM_BYTES;
        if (item.format != ITEM_WITH_SIZE)
            continue;
        if (item.attribute == ITEM_PARAMETER && item.bytes == sizeof(struct parameter_item))
            read_item(entry, data);
        data += item.bytes;
    }
}

/* The section ".nv.info.NAME" belongs to the kernel NAME. */
static void read_info(struct image *image, const struct cubin *cubin, const Elf64_Shdr *section)
{
    const char *name = cubin->names + section->sh_name, *data = section_data(cubin, section);
    if (strncmp(name, ".nv.info.", 9))
        return;
    for (struct entry *entry = image->entries; entry; entry = entry->next)
        if (!strcmp(entry->name, name + 9))
            read_items(entry, data, data + section->sh_size);
}

CUresult image_read_cubin(struct image *image, const void *data)
{
    struct cubin cubin = {.data = data, .header = data};
    if (cubin.header->e_ident[EI_CLASS] != ELFCLASS64 || cubin.header->e_machine != EM_OF_CUDA)
        return CUDA_ERROR_INVALID_IMAGE;
    cubin.sections = (const void *)(cubin.data + cubin.header->e_shoff);
    cubin.names = section_data(&cubin, &cubin.sections[cubin.header->e_shstrndx]);
    read_symbols(image, &cubin);
    for (int i = 0; i < cubin.header->e_shnum; i++)
        read_info(image, &cubin, &cubin.sections[i]);
    image->bytes = size_of(&cubin);
    return CUDA_SUCCESS;
}
