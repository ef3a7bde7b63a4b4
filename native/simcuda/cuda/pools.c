/* Pools of memory: what they reserve and hand out. */
#include "cuda/pools.h"

#include "cuda/arena.h"
#include "cuda/graphs.h"

static struct pool *pools;

static uint64_t in_steps(uint64_t bytes)
{
    return round_up(bytes, driver.settings.pool_step_bytes);
}

struct pool *pool_new(struct device *device, const CUmemPoolProps *props)
{
    struct pool *pool = object_new(sizeof *pool, KIND_POOL, 0);
    if (!pool)
        return 0;
    pool->device = device;
    pool->props = *props;
    for (int i = 0; i < REUSES; i++)
        pool->reuse[i] = 1;
    pool->next = pools;
    pools = pool;
    return pool;
}

static struct pool *made_once(struct pool **pool, struct device *device)
{
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
    if (!*pool)
        *pool = pool_new(device, &props);
    return *pool;
}

struct pool *pool_default(struct device *device)
{
    return made_once(&device->default_pool, device);
}

struct pool *pool_current(struct device *device)
{
    return device->current_pool ? device->current_pool : pool_default(device);
}

struct pool *pool_of_graphs(struct device *device)
{
    return made_once(&device->graph_pool, device);
}

static void delete_pool(struct pool *pool)
{
    struct pool **link = &pools;
    pool_trim(pool, 0);
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    object_delete(pool);
}

void pool_destroy(struct pool *pool)
{
    if (pool->device && pool->device->current_pool == pool)
        pool->device->current_pool = 0;
    pool->destroyed = true;
    if (!pool->used_bytes)
        delete_pool(pool);
}

static bool reserve_up_to(struct pool *pool, uint64_t wanted_bytes)
{
    uint64_t more_bytes = wanted_bytes - pool->reserved_bytes;
    if (pool->device && !device_take(pool->device, more_bytes))
        return false;
    pool->reserved_bytes = wanted_bytes;
    return true;
}

/* If the card is full, all pools are shrunk, and this very one with them. */
static CUresult grow(struct pool *pool, uint64_t used_bytes)
{
    uint64_t wanted_bytes = in_steps(used_bytes);
    if (pool->props.maxSize && wanted_bytes > in_steps(pool->props.maxSize))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (pool->reserved_bytes < wanted_bytes && !reserve_up_to(pool, wanted_bytes)) {
        pools_shrink(pool->device, true);
        if (!reserve_up_to(pool, wanted_bytes))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pool->reserved_high_bytes = later(pool->reserved_high_bytes, pool->reserved_bytes);
    return CUDA_SUCCESS;
}

static void use(struct pool *pool, uint64_t bytes)
{
    pool->used_bytes += bytes;
    pool->used_high_bytes = later(pool->used_high_bytes, pool->used_bytes);
}

CUresult pool_reserve(struct pool *pool, uint64_t more_bytes)
{
    if (pool->device && more_bytes > pool->device->facts->memory_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return grow(pool, pool->used_bytes + round_up(more_bytes, ALLOCATION_STEP));
}

static CUresult hand_out(struct pool *pool, enum origin origin, void *start, size_t bytes,
                         struct block **out)
{
    struct block *block = start ? block_add(0, origin, start, bytes) : 0;
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->device = pool->device;
    block->pool = pool;
    use(pool, round_up(bytes, ALLOCATION_STEP));
    *out = block;
    return CUDA_SUCCESS;
}

CUresult pool_allocate(struct pool *pool, size_t bytes, struct block **out)
{
    CUresult result = pool_reserve(pool, bytes);
    return result ? result : hand_out(pool, FROM_POOL, arena_take(bytes), bytes, out);
}

CUresult pool_allocate_at(struct pool *pool, void *start, size_t bytes, struct block **out)
{
    CUresult result = pool_reserve(pool, bytes);
    return result ? result : hand_out(pool, FROM_GRAPH, start, bytes, out);
}

/* Addresses of a graph's memory stay its own, for its next launch. */
void pool_free(struct block *block)
{
    struct pool *pool = block->pool;
    pool->used_bytes -= round_up(block->bytes, ALLOCATION_STEP);
    if (block->origin == FROM_POOL)
        arena_give((void *)block->start, block->bytes);
    if (block->reservation)
        reservation_release(block->reservation);
    block_remove(block);
    if (pool->destroyed && !pool->used_bytes)
        delete_pool(pool);
}

void pool_trim(struct pool *pool, uint64_t keep_bytes)
{
    uint64_t needed_bytes = in_steps(pool->used_bytes);
    if (keep_bytes >= pool->reserved_bytes)
        return;
    needed_bytes = later(needed_bytes, in_steps(keep_bytes));
    if (needed_bytes >= pool->reserved_bytes)
        return;
    if (pool->device)
        device_release(pool->device, pool->reserved_bytes - needed_bytes);
    pool->reserved_bytes = needed_bytes;
}

/* Memory of graphs stays until it is asked back with cuDeviceGraphMemTrim. */
void pools_shrink(struct device *device, bool to_the_last)
{
    for (struct pool *pool = pools; pool; pool = pool->next)
        if (pool->device == device && pool != device->graph_pool)
            pool_trim(pool, to_the_last ? 0 : pool->threshold_bytes);
}
