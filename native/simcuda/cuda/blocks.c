/* Blocks of memory, in a tree of the C library in which blocks that overlap are equal. */
#include "cuda/blocks.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/arena.h"
#include "cuda/pools.h"

static void *tree;

static int compare(const void *one, const void *other)
{
    const struct block *a = one, *b = other;
    if (a->start + a->bytes <= b->start)
        return -1;
    return a->start >= b->start + b->bytes;
}

struct block *block_add(struct context *context, enum origin origin, void *start, size_t bytes)
{
    static unsigned long long ids;
    struct block *block = object_new(sizeof *block, KIND_BLOCK, context);
    if (!block)
        return 0;
    block->start = (CUdeviceptr)start;
    block->bytes = bytes;
    block->origin = origin;
    block->id = ++ids;
    block->shared_fd = -1;
    block->accessible = true;
    struct block **place = tsearch(block, &tree, compare);
    if (place && *place == block)
        return block;
    object_delete(block);
    return 0;
}

void block_remove(struct block *block)
{
    tdelete(block, &tree, compare);
    if (block->shared_fd >= 0)
        close(block->shared_fd);
    object_delete(block);
}

struct block *block_around(CUdeviceptr address)
{
    struct block key = {.start = address, .bytes = 1};
    struct block **found = tfind(&key, &tree, compare);
    return found ? *found : 0;
}

struct block *block_at(CUdeviceptr address)
{
    struct block *block = block_around(address);
    return block && block->start == address ? block : 0;
}

bool block_covers(CUdeviceptr address, size_t bytes)
{
    struct block *block;
    while ((block = block_around(address)) && block->accessible) {
        size_t there = block->start + block->bytes - address;
        if (bytes <= there)
            return true;
        if (block->origin != FROM_PHYSICAL)
            return false;
        address += there; /* mappings beside each other are one range */
        bytes -= there;
    }
    return false;
}

static void give_back(struct block *block)
{
    void *start = (void *)block->start;
    if (block->shared_fd >= 0) /* its pages are a file's: give these addresses new ones */
        mmap(start, block->bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    switch (block->origin) {
    case FROM_DEVICE:
    case FROM_MANAGED:
    case FROM_IMAGE:
        arena_give(start, block->bytes);
        break;
    case FROM_LOW:
        arena_give_low(start, block->bytes);
        break;
    case FROM_HOST:
        free(start);
        break;
    case FROM_IPC:
        munmap(start, block->bytes);
        break;
    default:
        break;
    }
}

void block_end(void *pointer)
{
    struct block *block = pointer;
    if (block->cost_bytes)
        device_release(block->device, block->cost_bytes);
    give_back(block);
    block_remove(block);
}

static void *take(enum origin origin, size_t bytes)
{
    return origin == FROM_LOW ? arena_take_low(bytes) : arena_take(bytes);
}

/* The card first: an address is only worth taking if there is memory for it. */
CUresult block_allocate(struct context *context, enum origin origin, size_t bytes,
                        struct block **out)
{
    uint64_t cost_bytes = round_up(bytes, ALLOCATION_STEP);
    if (bytes > context->device->facts->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = device_reserve(context->device, cost_bytes);
    if (result)
        return result;
    void *start = take(origin, bytes);
    struct block *block = start ? block_add(context, origin, start, bytes) : 0;
    if (!block) {
        device_release(context->device, cost_bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->device = context->device;
    block->cost_bytes = cost_bytes;
    *out = block;
    return CUDA_SUCCESS;
}
