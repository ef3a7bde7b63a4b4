/* Runs of graphs that allocate.
 *
 * All graphs of a device have their memory from one pool, and what is free in it is anybody's. So a
 * run takes from the quota what the graph allocates, as if the pool had nothing to reuse, and is
 * corrected afterwards. But a graph is not refused what is its own:
 *
 *   kept    what it has allocated and nobody has freed since. It stays when the pool is trimmed, and
 *           no other graph gets it. Such addresses are in the ledger.
 *   turn    what it had when it last ran, unless since then the pool was trimmed, or another graph
 *           had some of its memory from what was free in the pool. */
#include "graphs.h"

uint32_t graph_turn = 1;

struct part { /* of a run, on one device */
    int device;
    uint64_t needed_bytes; /* beyond what it keeps */
    uint64_t taken_bytes;  /* of these, from the quota */
    uint64_t pool_bytes;   /* before the run */
};

struct graph_memory *graph_memory_of(CUgraphExec exec)
{
    struct ledger_entry entry;
    bool known = ledger_find(LEDGER_GRAPH, (uint64_t)exec, &entry);
    return known ? (struct graph_memory *)entry.owner : NULL;
}

bool graph_memory_put(CUgraphExec exec, struct graph_memory *memory)
{
    struct graph_memory *before = graph_memory_of(exec);
    struct ledger_entry entry = {
        .key = (uint64_t)exec, .owner = (uint64_t)memory, .kind = LEDGER_GRAPH, .count = 1};
    if (memory)
        ledger_add(&entry);
    else
        ledger_remove(LEDGER_GRAPH, entry.key, &entry);
    if (graph_memory_of(exec) != memory)
        return false;
    graph_memory_drop(before);
    return true;
}

/* ---- what is kept ---------------------------------------------------------------------------- */

/* No context's, but a device's; no handle is as small as that. */
static uint64_t owner_on(int device) { return (uint64_t)device + 1; }

static void mark(const struct memory_node *node)
{
    struct ledger_entry known = {.count = 0};
    ledger_find(LEDGER_KEPT, node->address, &known);
    ledger_add(&(struct ledger_entry){.key = node->address,
                                      .bytes = node->bytes,
                                      .owner = owner_on(node->device),
                                      .card = node->device,
                                      .kind = LEDGER_KEPT,
                                      .count = known.count + 1});
}

void graph_memory_unmark(const struct graph_memory *memory)
{
    struct ledger_entry entry;
    for (const struct memory_node *node = memory->nodes; node < memory->nodes + memory->count; node++)
        if (!node->frees)
            ledger_remove(LEDGER_KEPT, node->address, &entry);
}

/* Nodes come in no order; but what is allocated more often than it is freed is there afterwards. */
static void mark_what_stays(const struct graph_memory *memory)
{
    struct ledger_entry entry;
    graph_memory_unmark(memory);
    for (const struct memory_node *node = memory->nodes; node < memory->nodes + memory->count; node++)
        if (!node->frees)
            mark(node);
    for (const struct memory_node *node = memory->nodes; node < memory->nodes + memory->count; node++)
        if (node->frees)
            ledger_count(LEDGER_KEPT, node->address, -1, &entry);
}

void graph_memory_ended(CUdevice device)
{
    if (pools_used())
        ledger_remove_all(LEDGER_KEPT, (CUcontext)owner_on(device));
}

static uint64_t kept_bytes(const struct graph_memory *memory, int device)
{
    struct ledger_entry entry;
    uint64_t kept = 0;
    for (const struct memory_node *node = memory->nodes; node < memory->nodes + memory->count; node++)
        if (!node->frees && node->device == device &&
            ledger_find(LEDGER_KEPT, node->address, &entry))
            kept += entry.bytes < node->bytes ? entry.bytes : node->bytes;
    return kept;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool take_part(const struct graph_memory *memory, const struct run *run, struct part *part)
{
    struct pool *pool = pool_know(NULL, part->device);
    uint64_t kept = kept_bytes(memory, part->device), demand = memory->demand_bytes[part->device];
    uint64_t bytes = round_up(demand > kept ? demand - kept : 0, PHYSICAL_GRAIN_BYTES);
    bool taken = pool && bytes && quota_take(pool->card, bytes);
    bool its_own = pool && (!bytes || memory->turn == graph_turn);
    if (pool && !taken && !its_own)
        taken = pool_take(&pool, bytes, run->stream, run->per_thread);
    part->needed_bytes = bytes;
    part->taken_bytes = taken ? bytes : 0;
    part->pool_bytes = pool ? pool->counted_bytes : 0;
    if (taken || its_own)
        return true;
    pool_refuse(pool);
    return false;
}

/* On every device, or on none. */
static bool take_parts(const struct graph_memory *memory, const struct run *run, struct part *parts,
                       int *count)
{
    *count = 0;
    for (uint64_t left = memory->devices; left; left &= left - 1) {
        parts[*count].device = __builtin_ctzll(left);
        if (!take_part(memory, run, &parts[*count]))
            break;
        ++*count;
    }
    if (*count == __builtin_popcountll(memory->devices))
        return true;
    while (--*count >= 0)
        quota_give(card_of_device(parts[*count].device), parts[*count].taken_bytes);
    return false;
}

/* True: some of what it needed was free in the pool, where others may have had it before. */
static bool settle_part(const struct part *part)
{
    struct pool *pool = pool_know(NULL, part->device);
    pool_settle(pool, part->taken_bytes);
    return pool->counted_bytes < part->pool_bytes + part->needed_bytes;
}

static void note(struct graph_memory *memory, const struct run *run, CUresult result, bool reused)
{
    graph_turn += reused && memory->turn != graph_turn;
    if (!result)
        memory->turn = graph_turn;
    if (!result && run->launches)
        mark_what_stays(memory);
    else if (result && memory->frees_first)
        graph_memory_unmark(memory); /* whether it did, nobody tells */
}

CUresult graph_memory_run(struct graph_memory *memory, const struct run *run)
{
    struct part parts[GRAPH_DEVICES];
    int count;
    bool reused = false;
    if (!take_parts(memory, run, parts, &count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = run->call(run->exec, run->stream);
    for (int i = 0; i < count; i++)
        reused |= settle_part(&parts[i]);
    note(memory, run, result, reused);
    return result;
}
