/* Reading what a graph allocates and frees, however that got into it: added, captured, or inside of
 * a child graph. */
#define _GNU_SOURCE
#include "graphs.h"
#include <sys/mman.h>

enum { FIRST_BYTES = 4096 };

/* A graph that is being read. Not on the stack: they may be nested as deeply as a program likes. */
struct level {
    struct level *outer;
    size_t next, count, bytes;
    CUgraphNode nodes[];
};

static void *mapped(size_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static CUresult open_level(struct level **level, CUgraph graph)
{
    size_t count = 0;
    CUresult result = REAL(cuGraphGetNodes)(graph, NULL, &count);
    if (result)
        return result;
    size_t bytes = sizeof(struct level) + count * sizeof(CUgraphNode);
    struct level *inner = mapped(bytes);
    if (!inner)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *inner = (struct level){.outer = *level, .count = count, .bytes = bytes};
    *level = inner;
    return count ? REAL(cuGraphGetNodes)(graph, inner->nodes, &inner->count) : CUDA_SUCCESS;
}

static void close_level(struct level **level)
{
    struct level *done = *level;
    *level = done->outer;
    munmap(done, done->bytes);
}

static size_t bytes_for(uint32_t count)
{
    return sizeof(struct graph_memory) + count * sizeof(struct memory_node);
}

/* Room for one node more, or NULL. */
static struct graph_memory *with_room(struct graph_memory *memory)
{
    if (memory && bytes_for(memory->count + 1) <= memory->mapped_bytes)
        return memory;
    size_t bytes = memory ? 2 * memory->mapped_bytes : FIRST_BYTES;
    void *larger = memory ? mremap(memory, memory->mapped_bytes, bytes, MREMAP_MAYMOVE) : mapped(bytes);
    if (!larger || larger == MAP_FAILED)
        return NULL;
    memory = larger;
    memory->mapped_bytes = bytes;
    return memory;
}

static CUresult add_node(struct graph_memory **memory, struct memory_node node)
{
    struct graph_memory *roomy = with_room(*memory);
    if (!roomy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    roomy->nodes[roomy->count++] = node;
    *memory = roomy;
    return CUDA_SUCCESS;
}

static CUresult add_allocation(CUgraphNode node, struct graph_memory **memory)
{
    CUDA_MEM_ALLOC_NODE_PARAMS wanted;
    CUresult result = REAL(cuGraphMemAllocNodeGetParams)(node, &wanted);
    CUmemLocation *location = &wanted.poolProps.location;
    if (result || !on_card(location->type))
        return result;
    if (location->id < 0 || location->id >= GRAPH_DEVICES)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t bytes = round_up(wanted.bytesize, GRAIN_BYTES);
    result = add_node(memory, (struct memory_node){.address = wanted.dptr,
                                                   .bytes = bytes,
                                                   .device = (int16_t)location->id});
    if (result)
        return result;
    uint64_t *demand_bytes = &(*memory)->demand_bytes[location->id];
    *demand_bytes = round_up(*demand_bytes + bytes, GRAIN_BYTES);
    (*memory)->devices |= 1ull << location->id;
    return CUDA_SUCCESS;
}

static CUresult add_free(CUgraphNode node, struct graph_memory **memory)
{
    CUdeviceptr address;
    CUresult result = REAL(cuGraphMemFreeNodeGetParams)(node, &address);
    return result ? result : add_node(memory, (struct memory_node){.address = address, .frees = true});
}

static CUresult read_node(CUgraphNode node, struct level **level, struct graph_memory **memory)
{
    CUgraph child;
    int type;
    CUresult result = REAL(cuGraphNodeGetType)(node, &type);
    if (!result && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return add_allocation(node, memory);
    if (!result && type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return add_free(node, memory);
    if (result || type != CU_GRAPH_NODE_TYPE_GRAPH)
        return result;
    result = REAL(cuGraphChildGraphNodeGetGraph)(node, &child);
    return result ? result : open_level(level, child);
}

CUresult graph_memory_read(CUgraph graph, struct graph_memory **memory)
{
    struct level *level = NULL;
    *memory = NULL;
    CUresult result = open_level(&level, graph);
    while (level)
        if (result || level->next == level->count)
            close_level(&level);
        else
            result = read_node(level->nodes[level->next++], &level, memory);
    if (!result)
        return result;
    graph_memory_drop(*memory);
    *memory = NULL;
    return result;
}

static bool same_node(const struct memory_node *a, const struct memory_node *b)
{
    return a->address == b->address && a->bytes == b->bytes && a->device == b->device &&
           a->frees == b->frees;
}

bool graph_memory_alike(const struct graph_memory *a, const struct graph_memory *b)
{
    bool alike = a && b && a->count == b->count;
    for (uint32_t i = 0; alike && i < a->count; i++)
        alike = same_node(&a->nodes[i], &b->nodes[i]);
    return alike;
}

void graph_memory_drop(struct graph_memory *memory)
{
    if (memory)
        munmap(memory, memory->mapped_bytes);
}
