/*
 * Running a graph: its effects at once, node after node; then its time on the stream, all kernels
 * as one piece of work on the card, and after them its copies and callbacks.
 */
#include "cuda/blocks.h"
#include "cuda/callbacks.h"
#include "cuda/copies.h"
#include "cuda/graphs.h"
#include "cuda/pools.h"

struct progress {
    struct stream *stream;
    uint64_t kernels_ns, copies_ns;
    bool has_kernels;
};

static CUresult run_kernel(const struct node *node, struct progress *progress)
{
    struct launch launch = node_launch(node);
    const CUDA_KERNEL_NODE_PARAMS_v3 *params = &node->params.kernel;
    CUresult result = launch_prepare(&launch, params->kernelParams, params->extra);
    REQUIRE(!result, result);
    progress->kernels_ns += launch_duration_ns(&launch);
    progress->has_kernels = true;
    return launch_effects(&launch);
}

static CUresult run_copy(const struct node *node, struct progress *progress)
{
    struct copy copy;
    CUresult result = copy_of_3d(&node->params.memcpy.copyParams, &copy);
    REQUIRE(!result, result);
    copy_move(&copy);
    progress->copies_ns += copy_duration_ns(&copy);
    return CUDA_SUCCESS;
}

static CUresult run_setting(const struct node *node, struct progress *progress)
{
    const CUDA_MEMSET_NODE_PARAMS_v2 *params = &node->params.memset;
    struct setting setting = {
        .to = {.start = (char *)params->dst, .pitch_bytes = params->pitch},
        .value = params->value,
        .element_bytes = params->elementSize,
        .width = params->width,
        .height = params->height,
    };
    if (!params->width || !params->height)
        return CUDA_SUCCESS;
    REQUIRE(setting_fits(&setting), CUDA_ERROR_ILLEGAL_ADDRESS);
    setting_apply(&setting);
    progress->copies_ns += setting_duration_ns(&setting);
    return CUDA_SUCCESS;
}

/* The block holds the address: the graph may be destroyed before its memory is freed. */
static CUresult run_allocation(const struct node *node)
{
    struct device *device = device_find(node->params.alloc.poolProps.location.id);
    struct pool *pool = pool_of_graphs(device);
    struct block *block;
    REQUIRE(pool, CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE_VALUE(!block_at(node->params.alloc.dptr));
    CUresult result =
        pool_allocate_at(pool, node->reservation->start, node->reservation->bytes, &block);
    REQUIRE(!result, result);
    block->reservation = node->reservation;
    node->reservation->holders++;
    return CUDA_SUCCESS;
}

static CUresult run_free(CUdeviceptr address)
{
    struct block *block = block_at(address);
    REQUIRE_VALUE(block && block->origin == FROM_GRAPH);
    pool_free(block);
    return CUDA_SUCCESS;
}

static CUresult run_event(const struct node *node, struct progress *progress)
{
    struct event *event = object_find(node->params.eventWait.event, KIND_EVENT);
    REQUIRE(event, CUDA_ERROR_INVALID_HANDLE);
    if (node->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
        event_delays(event, progress->stream);
    return CUDA_SUCCESS;
}

static CUresult run_nodes(const struct graph *graph, struct progress *progress);

static CUresult run_node(const struct node *node, struct progress *progress)
{
    switch (node->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return run_kernel(node, progress);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return run_copy(node, progress);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return run_setting(node, progress);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return run_nodes(node->child, progress);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return run_event(node, progress);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return run_allocation(node);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return run_free(node->params.free.dptr);
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult run_nodes(const struct graph *graph, struct progress *progress)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct node *node = graph->first; !result && node; node = node->next)
        if (!node->disabled)
            result = run_node(node, progress);
    return result;
}

/* What comes at the end: events are recorded when all is done, and so are functions called. */
static CUresult conclude(const struct graph *graph, struct stream *stream)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct node *node = graph->first; !result && node; node = node->next) {
        const CUgraphNodeParams *params = &node->params;
        if (node->disabled)
            continue;
        if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = conclude(node->child, stream);
        else if (params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
            event_record(object_find(params->eventRecord.event, KIND_EVENT), stream);
        else if (params->type == CU_GRAPH_NODE_TYPE_HOST)
            result = callback_queue(stream, (struct callback){.function = params->host.fn,
                                                              .data = params->host.userData});
    }
    return result;
}

static void free_all(const struct graph *graph)
{
    for (const struct node *node = graph->first; node; node = node->next) {
        struct block *block = node->reservation ? block_at(node->params.alloc.dptr) : 0;
        if (block)
            pool_free(block);
        if (node->child)
            free_all(node->child);
    }
}

CUresult graph_run(struct graph *graph, struct stream *stream, bool free_first)
{
    struct progress progress = {.stream = stream};
    if (free_first)
        free_all(graph);
    CUresult result = run_nodes(graph, &progress);
    REQUIRE(!result, result);
    if (progress.has_kernels)
        stream_compute(stream, progress.kernels_ns);
    if (progress.copies_ns)
        stream_occupy(stream, progress.copies_ns);
    return conclude(graph, stream);
}

/* What a graph has yet to allocate on each device, with the graphs inside of it. */
static void add_allocations(const struct graph *graph, uint64_t bytes[CARDS_MAX])
{
    for (const struct node *node = graph->first; node; node = node->next) {
        if (node->reservation && !block_at(node->params.alloc.dptr))
            bytes[node->params.alloc.poolProps.location.id] +=
                round_up(node->reservation->bytes, ALLOCATION_STEP);
        if (node->child)
            add_allocations(node->child, bytes);
    }
}

CUresult graph_reserve(const struct graph *graph)
{
    uint64_t bytes[CARDS_MAX] = {0};
    add_allocations(graph, bytes);
    for (int i = 0; i < devices_count(); i++) {
        struct pool *pool = bytes[i] ? pool_of_graphs(device_find(i)) : 0;
        CUresult result = pool ? pool_reserve(pool, bytes[i]) : CUDA_SUCCESS;
        REQUIRE(!result, result);
    }
    return CUDA_SUCCESS;
}
