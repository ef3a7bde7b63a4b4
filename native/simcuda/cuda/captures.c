/* Capturing: what is called on a stream becomes nodes, each after what was called before it. */
#include "cuda/captures.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/graphs.h"

static struct capture *captures;

static struct capture *find_capture(unsigned long long id)
{
    struct capture *capture = captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

static void enter(struct stream *stream, struct capture *capture)
{
    stream->capture = capture;
    stream->next_captured = capture->streams;
    capture->streams = stream;
    if (!(stream->flags & CU_STREAM_NON_BLOCKING))
        stream->object.context->blocking_captures++;
}

static void leave(struct stream *stream)
{
    struct stream **link = &stream->capture->streams;
    while (*link != stream)
        link = &(*link)->next_captured;
    *link = stream->next_captured;
    if (!(stream->flags & CU_STREAM_NON_BLOCKING))
        stream->object.context->blocking_captures--;
    free(stream->heads);
    stream->capture = 0;
    stream->heads = 0;
    stream->head_count = 0;
}

CUresult capture_begin(struct stream *stream, struct graph *graph)
{
    static unsigned long long ids;
    struct capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->graph_given = graph;
    capture->graph = graph ? graph : graph_new();
    if (!capture->graph) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->id = ++ids;
    capture->origin = stream;
    capture->next = captures;
    captures = capture;
    enter(stream, capture);
    return CUDA_SUCCESS;
}

static void delete_capture(struct capture *capture)
{
    struct capture **link = &captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    while (capture->streams)
        leave(capture->streams);
    free(capture);
}

static bool is_head(const struct stream *stream, const struct node *node)
{
    for (size_t i = 0; i < stream->head_count; i++)
        if (stream->heads[i] == node)
            return true;
    return false;
}

static bool has_successor(const struct node *node)
{
    for (const struct node *other = node->graph->first; other; other = other->next)
        if (node_depends_on(other, node))
            return true;
    return false;
}

/* Whatever other streams did must have been waited for. */
static bool joined(const struct capture *capture)
{
    for (const struct stream *stream = capture->streams; stream; stream = stream->next_captured)
        for (size_t i = 0; i < stream->head_count; i++)
            if (!is_head(capture->origin, stream->heads[i]) && !has_successor(stream->heads[i]))
                return false;
    return true;
}

CUresult capture_end(struct stream *stream, struct graph **graph)
{
    struct capture *capture = stream->capture;
    CUresult result = CUDA_SUCCESS;
    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = result ? 0 : capture->graph;
    if (result && !capture->graph_given)
        graph_delete(capture->graph);
    delete_capture(capture);
    return result;
}

void capture_abandon(struct stream *stream)
{
    struct capture *capture = stream->capture;
    if (capture->origin != stream) {
        leave(stream);
        return;
    }
    if (!capture->graph_given)
        graph_delete(capture->graph);
    delete_capture(capture);
}

CUresult capture_spoil(struct stream *stream)
{
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool capture_depend(struct stream *stream, struct node *const *heads, size_t count, bool besides)
{
    size_t kept = besides ? stream->head_count : 0;
    struct node **more = calloc(kept + count + 1, sizeof *more);
    if (!more)
        return false;
    if (kept)
        memcpy(more, stream->heads, kept * sizeof *more);
    for (size_t i = 0; i < count; i++)
        if (!besides || !is_head(stream, heads[i]))
            more[kept++] = heads[i];
    free(stream->heads);
    stream->heads = more;
    stream->head_count = kept;
    return true;
}

/* A node after all that the stream did so far; the next one comes after it. */
static CUresult append(struct stream *stream, const CUgraphNodeParams *params, struct node **out)
{
    struct node *node;
    REQUIRE(!stream->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CUresult result = node_add(stream->capture->graph, (CUgraphNode *)stream->heads,
                               stream->head_count, params, &node);
    if (!result && !capture_depend(stream, &node, 1, false))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        stream->capture->invalid = true;
    else if (out)
        *out = node;
    return result;
}

CUresult capture_launch(struct stream *stream, struct launch *launch)
{
    size_t packed_bytes = launch->packed_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)launch->packed,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes, CU_LAUNCH_PARAM_END};
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    params.kernel = (CUDA_KERNEL_NODE_PARAMS_v3){
        .func = launch->function,
        .gridDimX = launch->grid[0],
        .gridDimY = launch->grid[1],
        .gridDimZ = launch->grid[2],
        .blockDimX = launch->block[0],
        .blockDimY = launch->block[1],
        .blockDimZ = launch->block[2],
        .sharedMemBytes = launch->shared_bytes,
        .kernelParams = launch->arguments,
        .extra = launch->packed ? extra : 0,
        .ctx = (CUcontext)stream->object.context,
    };
    return append(stream, &params, 0);
}

CUresult capture_copy(struct stream *stream, const CUDA_MEMCPY3D *params)
{
    CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                              .memcpy = {.copyParams = *params}};
    return append(stream, &node, 0);
}

CUresult capture_setting(struct stream *stream, const struct setting *setting)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    params.memset = (CUDA_MEMSET_NODE_PARAMS_v2){
        .dst = (CUdeviceptr)setting->to.start,
        .pitch = setting->to.pitch_bytes,
        .value = setting->value,
        .elementSize = setting->element_bytes,
        .width = setting->width,
        .height = setting->height,
    };
    return append(stream, &params, 0);
}

CUresult capture_host(struct stream *stream, CUhostFn function, void *data)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST,
                                .host = {.fn = function, .userData = data}};
    return append(stream, &params, 0);
}

CUresult capture_graph(struct stream *stream, struct graph *graph)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
                                .graph = {.graph = (CUgraph)graph}};
    return append(stream, &params, 0);
}

CUresult capture_allocate(struct stream *stream, CUdeviceptr *address, size_t bytes)
{
    struct node *node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    params.alloc.bytesize = bytes;
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.alloc.poolProps.location.id = stream_device(stream)->ordinal;
    CUresult result = append(stream, &params, &node);
    if (!result)
        *address = node->params.alloc.dptr;
    return result;
}

CUresult capture_free(struct stream *stream, CUdeviceptr address)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = address}};
    return append(stream, &params, 0);
}

/* An event that is recorded in a capture stands for the nodes before it; outside it is nothing. */
CUresult capture_record(struct stream *stream, struct event *event, bool external)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                                .eventRecord = {.event = (CUevent)event}};
    if (external)
        return append(stream, &params, 0);
    struct node **heads = calloc(stream->head_count + 1, sizeof *heads);
    REQUIRE(heads, CUDA_ERROR_OUT_OF_MEMORY);
    if (stream->head_count)
        memcpy(heads, stream->heads, stream->head_count * sizeof *heads);
    free(event->heads);
    event->heads = heads;
    event->head_count = stream->head_count;
    event->capture_id = stream->capture->id;
    return CUDA_SUCCESS;
}

/* Waiting for an event of a capture brings the stream into it. */
CUresult capture_wait(struct stream *stream, struct event *event, bool external)
{
    struct capture *capture = find_capture(event->capture_id);
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                .eventWait = {.event = (CUevent)event}};
    if (stream->capture && external)
        return append(stream, &params, 0);
    if (!capture) {
        if (stream->capture)
            stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    REQUIRE(!stream->capture || stream->capture == capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    REQUIRE(stream != stream->object.context->legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (!stream->capture)
        enter(stream, capture);
    bool done = capture_depend(stream, event->heads, event->head_count, true);
    return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
