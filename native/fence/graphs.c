/* Graphs: their memory nodes take memory when the graph is launched or uploaded, however they got
 * into it (added, captured, inside a child graph); so they are read off when it is instantiated,
 * and when it is updated. */
#define _GNU_SOURCE
#include "fence.h"
#include <sys/mman.h>

struct demand {
    uint64_t bytes[GRAPH_DEVICES];
};

static uint64_t devices; /* a bit for each that any graph has had memory on */

/* A graph that is being read. Not on the stack: they may be nested as deeply as a program likes. */
struct level {
    struct level *outer;
    size_t next, count, bytes;
    CUgraphNode nodes[];
};

static CUresult open_level(struct level **level, CUgraph graph)
{
    size_t count = 0;
    CUresult result = REAL(cuGraphGetNodes)(graph, NULL, &count);
    if (result)
        return result;
    size_t bytes = sizeof(struct level) + count * sizeof(CUgraphNode);
    struct level *inner =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (inner == MAP_FAILED)
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

static CUresult add_memory(CUgraphNode node, struct demand *demand)
{
    CUDA_MEM_ALLOC_NODE_PARAMS memory;
    CUresult result = REAL(cuGraphMemAllocNodeGetParams)(node, &memory);
    CUmemLocation *location = &memory.poolProps.location;
    if (result || !on_card(location->type))
        return result;
    if (location->id < 0 || location->id >= GRAPH_DEVICES)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t *bytes = &demand->bytes[location->id];
    *bytes = round_up(*bytes + round_up(memory.bytesize, GRAIN_BYTES), GRAIN_BYTES);
    return CUDA_SUCCESS;
}

static CUresult add_node(CUgraphNode node, struct level **level, struct demand *demand)
{
    CUgraph child;
    int type;
    CUresult result = REAL(cuGraphNodeGetType)(node, &type);
    if (!result && type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return add_memory(node, demand);
    if (result || type != CU_GRAPH_NODE_TYPE_GRAPH)
        return result;
    result = REAL(cuGraphChildGraphNodeGetGraph)(node, &child);
    return result ? result : open_level(level, child);
}

/* Any error: nobody can tell what the graph will take, so it must not come to run. */
static CUresult add_graph(CUgraph graph, struct demand *demand)
{
    struct level *level = NULL;
    CUresult result = open_level(&level, graph);
    while (level)
        if (result || level->next == level->count)
            close_level(&level);
        else
            result = add_node(level->nodes[level->next++], &level, demand);
    return result;
}

/* A graph has an entry for each device: addresses of a program leave the highest byte to us. */
static uint64_t key_of(CUgraphExec exec, int device)
{
    return (uint64_t)exec ^ (uint64_t)device << 56;
}

static bool write_part(const struct ledger_entry *part)
{
    struct ledger_entry written;
    if (!part->bytes) {
        ledger_remove(LEDGER_GRAPH, part->key, &written);
        return true;
    }
    __atomic_or_fetch(&devices, 1ull << part->card, __ATOMIC_RELAXED);
    ledger_add(part);
    return ledger_find(LEDGER_GRAPH, part->key, &written) && written.bytes == part->bytes;
}

/* In place of what was known; false: there is no memory for it. */
static bool write_down(CUgraphExec exec, const struct demand *demand)
{
    bool written = true;
    for (int device = 0; device < GRAPH_DEVICES; device++)
        written &= write_part(&(struct ledger_entry){.key = key_of(exec, device),
                                                     .bytes = demand->bytes[device],
                                                     .card = (int16_t)device,
                                                     .kind = LEDGER_GRAPH});
    return written;
}

static int parts_of(CUgraphExec exec, struct ledger_entry parts[GRAPH_DEVICES])
{
    int count = 0;
    uint64_t left = __atomic_load_n(&devices, __ATOMIC_RELAXED);
    for (; left; left &= left - 1)
        count += ledger_find(LEDGER_GRAPH, key_of(exec, __builtin_ctzll(left)), &parts[count]);
    return count;
}

static CUresult instantiated(CUgraphExec exec, const struct demand *demand)
{
    if (fence_enter() != FENCE_HELD || write_down(exec, demand))
        return CUDA_SUCCESS;
    REAL(cuGraphExecDestroy)(exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult read_graph(CUgraph graph, struct demand *demand)
{
    *demand = (struct demand){0};
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    return fence_enter() == FENCE_HELD ? add_graph(graph, demand) : CUDA_SUCCESS;
}

#define INSTANTIATE(symbol, parameters, ...)                                                       \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        struct demand demand;                                                                      \
        CUresult result = read_graph(graph, &demand);                                              \
        if (!result)                                                                               \
            result = REAL(symbol)(exec, graph, __VA_ARGS__);                                       \
        return result ? result : instantiated(*exec, &demand);                                     \
    }
INSTANTIATE(cuGraphInstantiate,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes), error,
            log, bytes)
INSTANTIATE(cuGraphInstantiate_v2,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *error, char *log, size_t bytes), error,
            log, bytes)
INSTANTIATE(cuGraphInstantiateWithFlags,
            (CUgraphExec * exec, CUgraph graph, unsigned long long flags), flags)

/* What is to be uploaded at once is uploaded by us, which is where it is counted. */
#define INSTANTIATE_AND_UPLOAD(symbol, upload)                                                     \
    CUresult symbol(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)   \
    {                                                                                              \
        const uint64_t flag = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;                                  \
        struct demand demand;                                                                      \
        CUresult result = read_graph(graph, &demand);                                              \
        if (result)                                                                                \
            return result;                                                                         \
        bool at_once = fence_enter() == FENCE_HELD && parameters && parameters->flags & flag;      \
        if (at_once)                                                                               \
            parameters->flags &= ~flag;                                                            \
        result = REAL(symbol)(exec, graph, parameters);                                            \
        if (!result)                                                                               \
            result = instantiated(*exec, &demand);                                                 \
        if (at_once)                                                                               \
            parameters->flags |= flag;                                                             \
        if (!result && at_once && (result = upload(*exec, parameters->hUploadStream)))             \
            cuGraphExecDestroy(*exec);                                                             \
        return result;                                                                             \
    }
INSTANTIATE_AND_UPLOAD(cuGraphInstantiateWithParams, cuGraphUpload)
INSTANTIATE_AND_UPLOAD(cuGraphInstantiateWithParams_ptsz, cuGraphUpload_ptsz)

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct ledger_entry parts[GRAPH_DEVICES];
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    int count = parts_of(exec, parts);
    for (int i = 0; i < count; i++)
        ledger_remove(LEDGER_GRAPH, parts[i].key, &parts[i]);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    for (int i = 0; result && i < count; i++)
        ledger_add(&parts[i]);
    return result;
}

static void write_again(CUgraphExec exec, const struct ledger_entry *parts, int count)
{
    write_down(exec, &(struct demand){0});
    for (int i = 0; i < count; i++)
        write_part(&parts[i]);
}

/* An update changes what the memory nodes take. That is written down before: it cannot be undone
 * where there is no memory for it. What failed was not done, says the driver. */
#define UPDATE(symbol, parameters, ...)                                                            \
    CUresult symbol parameters                                                                     \
    {                                                                                              \
        struct demand demand;                                                                      \
        struct ledger_entry parts[GRAPH_DEVICES];                                                  \
        CUresult result = read_graph(graph, &demand);                                              \
        if (result)                                                                                \
            return result;                                                                         \
        int count = parts_of(exec, parts);                                                         \
        bool written = fence_enter() != FENCE_HELD || write_down(exec, &demand);                   \
        result = written ? REAL(symbol)(exec, graph, __VA_ARGS__) : CUDA_ERROR_OUT_OF_MEMORY;      \
        if (result)                                                                                \
            write_again(exec, parts, count);                                                       \
        return result;                                                                             \
    }
UPDATE(cuGraphExecUpdate, (CUgraphExec exec, CUgraph graph, CUgraphNode *node, int *why), node, why)
UPDATE(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, void *why), why)

/* What a child would add to the rest of its graph cannot be told, since nobody tells what it
 * replaces. The driver supports no new parameters of a memory node either. */
static CUresult require_no_memory(CUgraph child)
{
    struct demand demand;
    CUresult result = read_graph(child, &demand);
    for (int device = 0; device < GRAPH_DEVICES; device++)
        if (!result && demand.bytes[device])
            result = CUDA_ERROR_NOT_SUPPORTED;
    return result;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    CUresult result = require_no_memory(child);
    return result ? result : REAL(cuGraphExecChildGraphNodeSetParams)(exec, node, child);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *parameters)
{
    CUresult result = driver_load(NULL) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
    if (parameters && parameters->type == CU_GRAPH_NODE_TYPE_GRAPH)
        result = require_no_memory(parameters->graph);
    return result ? result : REAL(cuGraphExecNodeSetParams)(exec, node, parameters);
}

static CUresult run_with_memory(struct run run)
{
    struct ledger_entry parts[GRAPH_DEVICES];
    int count = fence_enter() == FENCE_HELD ? parts_of(run.exec, parts) : 0;
    return count ? graph_memory_take(parts, count, &run) : run.call(run.exec, run.stream);
}

#define UPLOAD(symbol, is_per_thread)                                                              \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                             \
    {                                                                                              \
        int state = fence_enter();                                                                 \
        if (state != FENCE_HELD && state != FENCE_OPEN)                                            \
            return fence_refusal(state);                                                           \
        return run_with_memory((struct run){REAL(symbol), exec, stream, is_per_thread});           \
    }
UPLOAD(cuGraphUpload, false)
UPLOAD(cuGraphUpload_ptsz, true)

#define LAUNCH(symbol, is_per_thread)                                                              \
    CUresult symbol(CUgraphExec exec, CUstream stream)                                             \
    {                                                                                              \
        struct work work = {.key = exec, .stream = stream, .per_thread = is_per_thread};           \
        CUresult result = pace_before(&work);                                                      \
        if (result)                                                                                \
            return result;                                                                         \
        result = run_with_memory((struct run){REAL(symbol), exec, stream, is_per_thread});         \
        pace_after(&work, result);                                                                 \
        return result;                                                                             \
    }
LAUNCH(cuGraphLaunch, false)
LAUNCH(cuGraphLaunch_ptsz, true)
