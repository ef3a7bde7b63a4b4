/* Ranges of addresses, and memory mapped into them. */
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/physical.h"

/* A range that was reserved; what is mapped in it are blocks. */
struct range {
    struct range *next;
    CUdeviceptr start;
    size_t bytes;
};

static struct range *ranges;

static struct range **find_range(CUdeviceptr start, size_t bytes)
{
    struct range **link = &ranges;
    while (*link && !(start >= (*link)->start && bytes <= (*link)->bytes &&
                      start - (*link)->start <= (*link)->bytes - bytes))
        link = &(*link)->next;
    return link;
}

/* More than asked for, so that an aligned part is in it; the rest is given back. */
static void *reserve(size_t bytes, size_t alignment, CUdeviceptr wish)
{
    size_t room = bytes + alignment;
    char *start = mmap((void *)wish, room, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return 0;
    char *aligned = (char *)round_up((uint64_t)start, alignment);
    if (aligned != start)
        munmap(start, (size_t)(aligned - start));
    munmap(aligned + bytes, (size_t)(start + room - (aligned + bytes)));
    return aligned;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    ENTER();
    bool power_of_two = !(alignment & (alignment - 1));
    REQUIRE_VALUE(ptr && size && size % GRANULARITY == 0 && power_of_two && !flags);
    REQUIRE(size < 1ull << 46, CUDA_ERROR_OUT_OF_MEMORY);
    struct range *range = malloc(sizeof *range);
    void *start = range ? reserve(size, later(alignment, GRANULARITY), addr) : 0;
    if (!start) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *range = (struct range){ranges, (CUdeviceptr)start, size};
    ranges = range;
    *ptr = range->start;
    return CUDA_SUCCESS;
}

static bool anything_mapped(CUdeviceptr start, size_t bytes)
{
    for (CUdeviceptr at = start; at < start + bytes; at += GRANULARITY)
        if (block_around(at))
            return true;
    return false;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    ENTER();
    struct range **link = find_range(ptr, size), *range = *link;
    REQUIRE_VALUE(range && range->start == ptr && range->bytes == size);
    REQUIRE_VALUE(!anything_mapped(ptr, size));
    munmap((void *)ptr, size);
    *link = range->next;
    free(range);
    return CUDA_SUCCESS;
}

/* Mapped memory cannot be used before cuMemSetAccess allows it. */
CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    ENTER();
    struct physical *physical = object_find((void *)handle, KIND_PHYSICAL);
    REQUIRE_VALUE(physical && size && !flags && *find_range(ptr, size));
    REQUIRE_VALUE((ptr | size | offset) % GRANULARITY == 0);
    REQUIRE_VALUE(offset <= physical->bytes && size <= physical->bytes - offset);
    REQUIRE_VALUE(!anything_mapped(ptr, size));
    void *start = mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd,
                       (off_t)offset);
    REQUIRE(start != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    struct block *block = block_add(0, FROM_PHYSICAL, start, size);
    REQUIRE(block, CUDA_ERROR_OUT_OF_MEMORY);
    block->device = physical->device ? physical->device : device_of_thread();
    block->physical = physical;
    block->accessible = false;
    physical->mappings++;
    return CUDA_SUCCESS;
}

static void unmap(struct block *block)
{
    struct physical *physical = block->physical;
    mmap((void *)block->start, block->bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    block_remove(block);
    physical->mappings--;
    physical_release(physical);
}

/* Whole mappings that fill a range without holes; NULL at its end. */
static struct block *next_mapping(CUdeviceptr at, CUdeviceptr end)
{
    struct block *block = at < end ? block_at(at) : 0;
    bool whole = block && block->origin == FROM_PHYSICAL && block->start + block->bytes <= end;
    return whole ? block : 0;
}

static bool filled(CUdeviceptr start, CUdeviceptr end)
{
    for (struct block *block; start < end; start += block->bytes)
        if (!(block = next_mapping(start, end)))
            return false;
    return true;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    ENTER();
    REQUIRE_VALUE(size && filled(ptr, ptr + size));
    for (CUdeviceptr at = ptr; at < ptr + size;) {
        struct block *block = block_at(at);
        at += block->bytes;
        unmap(block);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    ENTER();
    REQUIRE_VALUE(desc && count && size && filled(ptr, ptr + size));
    bool allowed = false;
    for (size_t i = 0; i < count; i++)
        allowed |= desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (struct block *block; size; ptr += block->bytes, size -= block->bytes) {
        block = block_at(ptr);
        mprotect((void *)ptr, block->bytes, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
        block->accessible = allowed;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    ENTER();
    struct block *block = block_around(ptr);
    REQUIRE_VALUE(flags && location && block && block->origin == FROM_PHYSICAL);
    *flags = block->accessible ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
