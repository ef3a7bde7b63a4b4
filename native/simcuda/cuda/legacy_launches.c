/* Launching as it was before CUDA 4: shape and parameters are set on the function beforehand. */
#include <stdlib.h>
#include <string.h>

#include "cuda/launches.h"

/* What is set on a function, made at its first use. */
static CUresult find(CUfunction handle, struct legacy_launch **legacy)
{
    struct function *function = object_find(handle, KIND_FUNCTION);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    if (!function->legacy)
        function->legacy = calloc(1, sizeof *function->legacy);
    *legacy = function->legacy;
    return *legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z)
{
    ENTER();
    struct legacy_launch *legacy;
    CUresult result = find(hfunc, &legacy);
    REQUIRE(!result, result);
    REQUIRE_VALUE(x > 0 && y > 0 && z > 0);
    legacy->block[0] = (unsigned)x;
    legacy->block[1] = (unsigned)y;
    legacy->block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes)
{
    ENTER();
    struct legacy_launch *legacy;
    CUresult result = find(hfunc, &legacy);
    if (!result)
        legacy->shared_bytes = bytes;
    return result;
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes)
{
    ENTER();
    struct legacy_launch *legacy;
    CUresult result = find(hfunc, &legacy);
    REQUIRE(!result, result);
    REQUIRE_VALUE(numbytes <= LEGACY_PARAMETER_BYTES);
    legacy->parameter_bytes = numbytes;
    return CUDA_SUCCESS;
}

static CUresult set(CUfunction handle, int offset, const void *value, size_t bytes)
{
    ENTER();
    struct legacy_launch *legacy;
    CUresult result = find(handle, &legacy);
    REQUIRE(!result, result);
    REQUIRE_VALUE(value && offset >= 0 && bytes <= LEGACY_PARAMETER_BYTES &&
                  (size_t)offset <= LEGACY_PARAMETER_BYTES - bytes);
    memcpy(legacy->parameters + offset, value, bytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value)
{
    return set(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value)
{
    return set(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void *ptr, unsigned int numbytes)
{
    return set(hfunc, offset, ptr, numbytes);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream)
{
    ENTER_LAUNCH(stream, hStream);
    struct legacy_launch *legacy;
    CUresult result = find(f, &legacy);
    REQUIRE(!result, result);
    REQUIRE_VALUE(grid_width > 0 && grid_height > 0);
    struct launch launch = {
        .function = f,
        .grid = {(unsigned)grid_width, (unsigned)grid_height, 1},
        .block = {legacy->block[0], legacy->block[1], legacy->block[2]},
        .shared_bytes = legacy->shared_bytes,
    };
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, legacy->parameters,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &legacy->parameter_bytes, CU_LAUNCH_PARAM_END};
    result = launch_prepare(&launch, 0, extra);
    return result ? result : launch_on(stream, &launch);
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height)
{
    return cuLaunchGridAsync(f, grid_width, grid_height, 0);
}

CUresult cuLaunch(CUfunction f)
{
    return cuLaunchGridAsync(f, 1, 1, 0);
}
