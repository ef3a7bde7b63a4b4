/* What functions and kernels can be asked. The two families differ in name only. */
#include "cuda/modules.h"

static CUresult get_attribute(const void *handle, CUfunction_attribute attribute, int *value)
{
    const struct routine *routine = routine_find(handle);
    const struct device *device = device_of_thread();
    REQUIRE(routine, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(value && (unsigned)attribute < CU_FUNC_ATTRIBUTE_MAX);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return *value = 1024, CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        return *value = 32, CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        return *value = (int)device->facts->capability, CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return *value = routine->dynamic_shared_bytes ? routine->dynamic_shared_bytes : 49152,
               CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        return *value = routine->carveout, CUDA_SUCCESS;
    default:
        return *value = 0, CUDA_SUCCESS;
    }
}

static CUresult set_attribute(const void *handle, CUfunction_attribute attribute, int value)
{
    struct routine *routine = routine_find(handle);
    REQUIRE(routine, CUDA_ERROR_INVALID_HANDLE);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        REQUIRE_VALUE(value >= 0 && value <= 166912);
        routine->dynamic_shared_bytes = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        REQUIRE_VALUE(value >= -1 && value <= 100);
        routine->carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult get_name(const void *handle, const char **name)
{
    const struct routine *routine = routine_find(handle);
    REQUIRE(routine, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(name);
    *name = routine->entry->name;
    return CUDA_SUCCESS;
}

static CUresult get_parameter(const void *handle, size_t index, size_t *offset, size_t *bytes)
{
    const struct routine *routine = routine_find(handle);
    REQUIRE(routine, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(offset && index < routine->entry->parameter_count);
    *offset = routine->entry->parameters[index].offset;
    if (bytes)
        *bytes = routine->entry->parameters[index].bytes;
    return CUDA_SUCCESS;
}

static CUresult get_parameter_count(const void *handle, size_t *count)
{
    const struct routine *routine = routine_find(handle);
    REQUIRE(routine, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(count);
    *count = routine->entry->parameter_count;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    ENTER();
    return get_attribute(hfunc, attrib, pi);
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    ENTER();
    REQUIRE(device_find(dev), CUDA_ERROR_INVALID_DEVICE);
    return get_attribute(kernel, attrib, pi);
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    ENTER();
    return set_attribute(hfunc, attrib, value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    ENTER();
    REQUIRE(device_find(dev), CUDA_ERROR_INVALID_DEVICE);
    return set_attribute(kernel, attrib, val);
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    ENTER();
    (void)config;
    return routine_find(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    ENTER();
    (void)config, (void)dev;
    return routine_find(kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config)
{
    ENTER();
    (void)config;
    return routine_find(hfunc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc)
{
    ENTER();
    return get_name(hfunc, name);
}

CUresult cuKernelGetName(const char **name, CUkernel hfunc)
{
    ENTER();
    return get_name(hfunc, name);
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                            size_t *paramSize)
{
    ENTER();
    return get_parameter(func, paramIndex, paramOffset, paramSize);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
                              size_t *paramSize)
{
    ENTER();
    return get_parameter(kernel, paramIndex, paramOffset, paramSize);
}

CUresult cuFuncGetParamCount(CUfunction func, size_t *paramCount)
{
    ENTER();
    return get_parameter_count(func, paramCount);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *paramCount)
{
    ENTER();
    return get_parameter_count(kernel, paramCount);
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    ENTER();
    struct function *function = object_find(hfunc, KIND_FUNCTION);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(hmod);
    *hmod = (CUmodule)function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    ENTER();
    REQUIRE(routine_find(function), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(state);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    ENTER();
    return routine_find(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
