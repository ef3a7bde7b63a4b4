/* Graphs that are captured from streams. */
#include "sim_graph.h"

/* Nothing happens while a stream is captured; everything, in order, when the graph is launched. */
static void captured(void)
{
    CUgraph graph;
    unsigned back[ELEMENTS] = {0}, table[ELEMENTS] = {[3] = 33};
    CUstreamCaptureStatus status;
    size_t count;
    begin();
    CUdeviceptr other = device_bytes(back, BYTES);
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_fill(pointer, 1, stream);
    OK(cuMemsetD32Async(pointer, 2, 1, stream));
    OK(cuMemcpyHtoDAsync(pointer + 4, table, BYTES - 4, stream));
    OK(cuMemcpyDtoDAsync(other, pointer, BYTES, stream));
    OK(cuMemcpyDtoHAsync(back, other, BYTES, stream));
    OK(cuStreamIsCapturing(stream, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(filled(pointer, 0) && count == 5);
    CUgraphExec exec = instantiated(graph);
    OK(cuGraphDestroy(graph));
    launch(exec);
    CHECK(back[0] == 2 && back[1] == 0 && back[4] == 33);
    table[3] = 44; /* copies of the host's memory happen at each launch anew */
    launch(exec);
    CHECK(back[4] == 44);
    OK(cuGraphExecDestroy(exec));
    OK(cuMemFree(other));
    end();
}

/* A second stream joins by waiting for an event, and has to be waited for. */
static void joined(void)
{
    CUstream second;
    CUevent fork, join;
    CUgraph graph;
    begin();
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    for (int forgets = 0; forgets < 2; forgets++) {
        OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        launch_fill(pointer, 1, stream);
        OK(cuEventRecord(fork, stream));
        OK(cuStreamWaitEvent(second, fork, 0));
        launch_fill(pointer, 2, second);
        OK(cuEventRecord(join, second));
        EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(join));
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(second, &graph));
        if (!forgets)
            OK(cuStreamWaitEvent(stream, join, 0));
        EXPECT(forgets ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS,
               cuStreamEndCapture(stream, &graph));
        if (forgets)
            continue;
        CUgraphExec exec = instantiated(graph);
        launch(exec);
        CHECK(filled(pointer, 2));
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphDestroy(graph));
    }
    OK(cuEventDestroy(fork));
    OK(cuEventDestroy(join));
    OK(cuStreamDestroy(second));
    end();
}

/* What waits cannot be captured, and makes the capture worthless. */
static void spoiled(void)
{
    CUgraph graph = (CUgraph)1; /* to be seen replaced */
    CUstream blocking;
    begin();
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(pointer, 1, 1, stream));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    CHECK(!graph);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async(pointer, 1, 1, NULL));
    OK(cuStreamDestroy(blocking)); /* and what was captured on it */
    OK(cuMemsetD8Async(pointer, 1, 1, NULL));
    end();
}

/* Captured allocations are nodes; memory may be left to the next launch to free. */
static void captured_memory(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr own;
    begin();
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemAllocAsync(&own, BYTES, stream));
    launch_fill(own, 6, stream);
    OK(cuMemcpyDtoDAsync(pointer, own, BYTES, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    launch(exec);
    launch(exec);
    CHECK(filled(pointer, 6) && filled(own, 6));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    CHECK(filled(own, 6)); /* it outlives its graph */
    OK(cuMemFree(own));
    end();
}

/* All kernels of a graph are one piece of work, as long as they are together. */
static void timed(void)
{
    CUgraph graph;
    CUevent start, stop;
    unsigned us = 4000;
    float ms;
    void *arguments[] = {&us};
    begin();
    OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&stop, CU_EVENT_DEFAULT));
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 5; i++)
        OK(cuLaunchKernel(function("spin_us"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    OK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = instantiated(graph);
    OK(cuGraphLaunch(exec, stream)); /* keeps the card busy until the next one is queued */
    OK(cuEventRecord(start, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(cuEventRecord(stop, stream));
    OK(cuEventSynchronize(stop));
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 20.0f);
    OK(cuEventDestroy(start));
    OK(cuEventDestroy(stop));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    end();
}

static const struct area AREAS[] = {
    {"captured", captured},
    {"joined", joined},
    {"spoiled", spoiled},
    {"captured memory", captured_memory},
    {"timed", timed},
};

int main(int count, char **names)
{
    return run_areas(AREAS, COUNT(AREAS), count, names);
}
