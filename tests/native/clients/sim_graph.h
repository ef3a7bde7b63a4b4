/* What programs that try out graphs have in common. */
#pragma once

#include "sim_check.h"

enum { ELEMENTS = 256, BYTES = ELEMENTS * sizeof(unsigned) };

static CUmodule module;
static CUstream stream;
static CUdeviceptr pointer;

static inline void begin(void)
{
    OK(cuModuleLoadData(&module, IMAGE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&pointer, BYTES));
    OK(cuMemsetD8(pointer, 0, BYTES));
}

static inline void end(void)
{
    OK(cuStreamSynchronize(stream));
    OK(cuMemFree(pointer));
    OK(cuStreamDestroy(stream));
    OK(cuModuleUnload(module));
    OK(cuDeviceGraphMemTrim(0));
}

static inline CUfunction function(const char *name)
{
    CUfunction found;
    OK(cuModuleGetFunction(&found, module, name));
    return found;
}

/* Is every element of device memory that value? */
static inline int filled(CUdeviceptr at, unsigned value)
{
    unsigned expected[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        expected[i] = value;
    return holds(at, expected, BYTES);
}

static inline void launch_fill(CUdeviceptr to, unsigned value, CUstream on)
{
    int count = ELEMENTS;
    void *arguments[] = {&to, &value, &count};
    OK(cuLaunchKernel(function("fill"), 1, 1, 1, 1, 1, 1, 0, on, arguments, NULL));
}

static inline CUgraphExec instantiated(CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiate(&exec, graph, 0));
    return exec;
}

static inline void launch(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}
