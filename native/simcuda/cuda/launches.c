/* Launches of kernels. */
#include "cuda/launches.h"

#include "cuda/builtins.h"
#include "cuda/captures.h"

#define THREADS_PER_BLOCK_MAX 1024

static bool shape_fits(const struct launch *launch)
{
    const unsigned *grid = launch->grid, *block = launch->block;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    return grid[0] && grid[1] && grid[2] && grid[0] <= INT32_MAX && grid[1] <= 65535 &&
           grid[2] <= 65535 && block[2] <= 64 && threads && threads <= THREADS_PER_BLOCK_MAX;
}

/* `extra` is a list of keys, each followed by a pointer, up to CU_LAUNCH_PARAM_END. */
static bool read_extra(struct launch *launch, void **extra)
{
    const size_t *bytes = 0;
    for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            launch->packed = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = extra[1];
        else
            return false;
    }
    launch->packed_bytes = bytes ? *bytes : 0;
    return launch->packed && bytes;
}

CUresult launch_prepare(struct launch *launch, void **arguments, void **extra)
{
    launch->routine = routine_find(launch->function);
    REQUIRE(launch->routine, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(shape_fits(launch) && !(arguments && extra));
    launch->arguments = arguments;
    REQUIRE_VALUE(!extra || read_extra(launch, extra));
    const struct builtin *builtin = launch->routine->builtin;
    REQUIRE_VALUE(!builtin || arguments || launch->packed);
    return CUDA_SUCCESS;
}

uint64_t launch_duration_ns(const struct launch *launch)
{
    const struct routine *routine = launch->routine;
    if (routine->builtin && routine->builtin->duration_ns)
        return routine->builtin->duration_ns(launch);
    return routine->duration_ns;
}

CUresult launch_effects(const struct launch *launch)
{
    const struct builtin *builtin = launch->routine->builtin;
    return builtin && builtin->compute ? builtin->compute(launch) : CUDA_SUCCESS;
}

CUresult launch_on(struct stream *stream, struct launch *launch)
{
    if (stream->capture)
        return capture_launch(stream, launch);
    uint64_t duration_ns = launch_duration_ns(launch);
    CUresult result = launch_effects(launch);
    if (!result && launch->routine->library)
        result = library_settle(launch->routine->library, stream_device(stream));
    if (!result)
        stream_compute(stream, duration_ns);
    return result;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void **kernelParams, void **extra)
{
    ENTER_LAUNCH(stream, hStream);
    struct launch launch = {
        .function = f,
        .grid = {gridDimX, gridDimY, gridDimZ},
        .block = {blockDimX, blockDimY, blockDimZ},
        .shared_bytes = sharedMemBytes,
    };
    CUresult result = launch_prepare(&launch, kernelParams, extra);
    return result ? result : launch_on(stream, &launch);
}

/* Attributes of a launch change nothing here, but they must be there. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                          void **extra)
{
    if (!config || (config->numAttrs && !config->attrs))
        return wrong_value();
    return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams)
{
    return cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                          sharedMemBytes, hStream, kernelParams, 0);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList,
                                              unsigned int numDevices, unsigned int flags)
{
    (void)flags;
    if (!launchParamsList || !numDevices)
        return wrong_value();
    for (unsigned i = 0; i < numDevices; i++) {
        const CUDA_LAUNCH_PARAMS *one = &launchParamsList[i];
        CUresult result = cuLaunchCooperativeKernel(
            one->function, one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX,
            one->blockDimY, one->blockDimZ, one->sharedMemBytes, one->hStream, one->kernelParams);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}
