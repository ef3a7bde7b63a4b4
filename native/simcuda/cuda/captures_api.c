/* Capturing as a program begins it, ends it and asks about it. */
#include "cuda/captures.h"
#include "cuda/graphs.h"

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, struct graph *graph,
                      struct stream **out)
{
    struct stream *stream;
    CUresult result = stream_find(&stream, handle);
    REQUIRE(!result, result);
    REQUIRE_VALUE((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    REQUIRE(stream != stream->object.context->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REQUIRE(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    *out = stream;
    return capture_begin(stream, graph);
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    ENTER();
    struct stream *stream;
    return begin(hStream, mode, 0, &stream);
}

CUresult cuStreamBeginCapture(CUstream hStream)
{
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static bool all_nodes_of(const struct graph *graph, const CUgraphNode *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct node *node = object_find(nodes[i], KIND_NODE);
        if (!node || node->graph != graph)
            return false;
    }
    return true;
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode)
{
    ENTER();
    (void)dependencyData;
    struct stream *stream;
    struct graph *graph = object_find(hGraph, KIND_GRAPH);
    REQUIRE_VALUE(graph && (dependencies || !numDependencies) &&
                  all_nodes_of(graph, dependencies, numDependencies));
    CUresult result = begin(hStream, mode, graph, &stream);
    REQUIRE(!result, result);
    bool done =
        capture_depend(stream, (struct node *const *)dependencies, numDependencies, false);
    return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(phGraph);
    struct graph *graph = 0;
    CUresult result = capture_end(stream, &graph);
    *phGraph = (CUgraph)graph;
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    ENTER();
    REQUIRE_VALUE(mode && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureMode before = *thread_capture_mode();
    *thread_capture_mode() = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUstreamCaptureStatus status_of(const struct stream *stream)
{
    if (!stream->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(captureStatus);
    *captureStatus = status_of(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   const CUgraphEdgeData **edgeData_out,
                                   size_t *numDependencies_out)
{
    ENTER_STREAM(stream, hStream);
    REQUIRE_VALUE(captureStatus_out);
    *captureStatus_out = status_of(stream);
    if (*captureStatus_out != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id_out)
        *id_out = stream->capture->id;
    if (graph_out)
        *graph_out = (CUgraph)stream->capture->graph;
    if (dependencies_out)
        *dependencies_out = (const CUgraphNode *)stream->heads;
    if (edgeData_out)
        *edgeData_out = 0;
    if (numDependencies_out)
        *numDependencies_out = stream->head_count;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                   cuuint64_t *id_out, CUgraph *graph_out,
                                   const CUgraphNode **dependencies_out,
                                   size_t *numDependencies_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, graph_out,
                                     dependencies_out, 0, numDependencies_out);
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                cuuint64_t *id_out)
{
    return cuStreamGetCaptureInfo_v3(hStream, captureStatus_out, id_out, 0, 0, 0, 0);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                              const CUgraphEdgeData *dependencyData,
                                              size_t numDependencies, unsigned int flags)
{
    ENTER_STREAM(stream, hStream);
    (void)dependencyData;
    REQUIRE(stream->capture && !stream->capture->invalid, CUDA_ERROR_ILLEGAL_STATE);
    REQUIRE_VALUE((dependencies || !numDependencies) &&
                  all_nodes_of(stream->capture->graph, dependencies, numDependencies));
    bool besides = flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    bool done =
        capture_depend(stream, (struct node *const *)dependencies, numDependencies, besides);
    return done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                           size_t numDependencies, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(hStream, dependencies, 0, numDependencies, flags);
}
