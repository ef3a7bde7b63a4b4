/* Parameters of nodes: checked, and what they point to copied. */
#include <stdlib.h>
#include <string.h>

#include "cuda/arena.h"
#include "cuda/builtins.h"
#include "cuda/graphs.h"

#define ARGUMENT_STEP 16 /* a place aligned for any type */

void reservation_release(struct reservation *reservation)
{
    if (--reservation->holders)
        return;
    arena_give(reservation->start, reservation->bytes);
    free(reservation);
}

/* How many arguments a kernel has and how big they are, if that is known. */
static size_t argument_count(const struct routine *routine)
{
    return routine->builtin ? routine->builtin->argument_count : routine->entry->parameter_count;
}

static size_t argument_bytes(const struct routine *routine, size_t index)
{
    return routine->builtin ? routine->builtin->argument_bytes[index]
                            : routine->entry->parameters[index].bytes;
}

static bool complete(const struct routine *routine, void **arguments)
{
    for (size_t i = 0; i < argument_count(routine); i++)
        if (!arguments[i])
            return false;
    return true;
}

/* One allocation: first the pointers, then what they point to. */
static void **copy_arguments(const struct routine *routine, void **arguments)
{
    size_t count = argument_count(routine), bytes = round_up(count * sizeof(void *), ARGUMENT_STEP);
    size_t offset = bytes;
    for (size_t i = 0; i < count; i++)
        bytes += round_up(argument_bytes(routine, i), ARGUMENT_STEP);
    void **copy = malloc(bytes ? bytes : 1);
    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = (char *)copy + offset;
        memcpy(copy[i], arguments[i], argument_bytes(routine, i));
        offset += round_up(argument_bytes(routine, i), ARGUMENT_STEP);
    }
    return copy;
}

/* Arguments in one buffer: first the list that leads to it, then its size, then the bytes. */
static void **copy_packed(const struct launch *launch)
{
    enum { LIST = 6 };
    void **copy = malloc((LIST + 1) * sizeof(void *) + launch->packed_bytes);
    if (!copy)
        return 0;
    size_t *bytes = (size_t *)&copy[LIST - 1];
    void *list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &copy[LIST], CU_LAUNCH_PARAM_BUFFER_SIZE, bytes,
                    CU_LAUNCH_PARAM_END};
    memcpy(copy, list, sizeof list);
    *bytes = launch->packed_bytes;
    memcpy(&copy[LIST], launch->packed, launch->packed_bytes);
    return copy;
}

struct launch node_launch(const struct node *node)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *params = &node->params.kernel;
    return (struct launch){
        .function = params->func ? (void *)params->func : (void *)params->kern,
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .shared_bytes = params->sharedMemBytes,
    };
}

static CUresult assign_kernel(struct node *node, const CUDA_KERNEL_NODE_PARAMS_v3 *params)
{
    struct node probe = {.params = {.kernel = *params}};
    struct launch launch = node_launch(&probe);
    void **copy = 0;
    CUresult result = launch_prepare(&launch, params->kernelParams, params->extra);
    REQUIRE(!result, result);
    REQUIRE_VALUE(!params->kernelParams || complete(launch.routine, params->kernelParams));
    if (params->kernelParams)
        copy = copy_arguments(launch.routine, params->kernelParams);
    else if (params->extra)
        copy = copy_packed(&launch);
    REQUIRE(copy || (!params->kernelParams && !params->extra), CUDA_ERROR_OUT_OF_MEMORY);
    free(node->arguments);
    node->arguments = copy;
    node->params.kernel = *params;
    node->params.kernel.kernelParams = params->kernelParams ? copy : 0;
    node->params.kernel.extra = params->extra ? copy : 0;
    return CUDA_SUCCESS;
}

static CUresult assign_copy(struct node *node, const CUDA_MEMCPY_NODE_PARAMS *params)
{
    node->params.memcpy = *params;
    return CUDA_SUCCESS;
}

static CUresult assign_setting(struct node *node, const CUDA_MEMSET_NODE_PARAMS_v2 *params)
{
    unsigned bytes = params->elementSize;
    REQUIRE_VALUE(params->dst && (bytes == 1 || bytes == 2 || bytes == 4));
    node->params.memset = *params;
    return CUDA_SUCCESS;
}

static CUresult assign_host(struct node *node, const CUDA_HOST_NODE_PARAMS_v2 *params)
{
    REQUIRE_VALUE(params->fn);
    node->params.host = *params;
    return CUDA_SUCCESS;
}

static bool contains(const struct graph *graph, const struct graph *other)
{
    for (const struct node *node = graph->first; node; node = node->next)
        if (node->child && (node->child == other || contains(node->child, other)))
            return true;
    return false;
}

static bool can_move(const struct graph *graph, const struct node *node)
{
    return !graph->owned && !graph_exec(graph) && !contains(graph, node->graph);
}

/* The child is copied, so that what its graph becomes later does not change the node, or moved. One
 * that is a node's already, as its parameters tell, is copied with all that is in it. */
static CUresult assign_child(struct node *node, const CUDA_CHILD_GRAPH_NODE_PARAMS *params)
{
    struct graph *child = object_find(params->graph, KIND_GRAPH);
    bool moves = params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    bool clones = params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
    REQUIRE_VALUE(child && child != node->graph);
    REQUIRE_VALUE(!moves || can_move(child, node));
    REQUIRE_VALUE(!clones || (!child->moved && !graph_has_memory(child)));
    if (!moves)
        child = graph_copy(child);
    REQUIRE_VALUE(child);
    if (node->child)
        graph_delete(node->child);
    child->owned = true;
    child->moved = moves;
    node->child = child;
    node->params.graph = (CUDA_CHILD_GRAPH_NODE_PARAMS){
        .graph = (CUgraph)child, .ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID};
    return CUDA_SUCCESS;
}

static CUresult assign_event(CUevent *place, CUevent event)
{
    REQUIRE_VALUE(object_find(event, KIND_EVENT));
    *place = event;
    return CUDA_SUCCESS;
}

static struct reservation *reserve(size_t bytes)
{
    struct reservation *reservation = malloc(sizeof *reservation);
    if (!reservation)
        return 0;
    *reservation = (struct reservation){arena_take(bytes), bytes, 1};
    if (reservation->start)
        return reservation;
    free(reservation);
    return 0;
}

/* The address is known when the node is added; memory comes when it runs. */
static CUresult assign_allocation(struct node *node, const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params)
{
    const CUmemLocation *location = &params->poolProps.location;
    REQUIRE_VALUE(params->bytesize && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
                  device_find(location->id));
    if (!node->reservation)
        node->reservation = reserve(params->bytesize);
    REQUIRE(node->reservation, CUDA_ERROR_OUT_OF_MEMORY);
    node->params.alloc = *params;
    node->params.alloc.accessDescs = 0; /* every device reaches all memory */
    node->params.alloc.accessDescCount = 0;
    node->params.alloc.dptr = (CUdeviceptr)node->reservation->start;
    return CUDA_SUCCESS;
}

CUresult node_assign(struct node *node, const CUgraphNodeParams *params)
{
    REQUIRE_VALUE(params->type == node->params.type);
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return assign_kernel(node, &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return assign_copy(node, &params->memcpy);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return assign_setting(node, &params->memset);
    case CU_GRAPH_NODE_TYPE_HOST:
        return assign_host(node, &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return assign_child(node, &params->graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return assign_event(&node->params.eventWait.event, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return assign_event(&node->params.eventRecord.event, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return assign_allocation(node, &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        REQUIRE_VALUE(params->free.dptr);
        node->params.free = params->free;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
