/* A program that is linked with the driver; it does what the other clients of the matrix do. */
#include "sim_check.h"

enum { ELEMENTS = 1000, LAUNCHES = 40 };

static CUfunction kernel;

static int added(void)
{
    float values[ELEMENTS], sums[ELEMENTS];
    int count = ELEMENTS;
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (float)i, sums[i] = 2 * (float)i;
    CUdeviceptr one = device_bytes(values, sizeof values), result = device_bytes(sums, sizeof sums);
    void *arguments[] = {&one, &one, &result, &count};
    OK(cuMemsetD8(result, 0, sizeof sums));
    for (int i = 0; i < LAUNCHES; i++)
        OK(cuLaunchKernel(kernel, 4, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
    int right = holds(result, sums, sizeof sums);
    OK(cuMemFree(one));
    OK(cuMemFree(result));
    return right;
}

/* The name of what comes of an allocation; it is given back. */
static const char *allocated(CUdeviceptr *pointer, size_t bytes)
{
    const char *name;
    CUresult result = cuMemAlloc(pointer, bytes);
    if (!result)
        OK(cuMemFree(*pointer));
    OK(cuGetErrorName(result, &name));
    return name;
}

int main(int count, char **mib)
{
    CUcontext context;
    CUmodule module;
    CUdeviceptr pointer;
    char name[96];
    size_t total;
    CHECK(count == 3);
    OK(cuInit(0));
    OK(cuDeviceGetName(name, sizeof name, 0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, IMAGE));
    OK(cuModuleGetFunction(&kernel, module, "vadd"));
    OK(cuDeviceTotalMem(&total, 0));
    size_t before = free_bytes();
    int computed = added();
    CHECK(!strcmp(allocated(&pointer, (size_t)atoll(mib[1]) * MIB), "CUDA_SUCCESS"));
    const char *refused = allocated(&pointer, (size_t)atoll(mib[2]) * MIB);
    printf("{\"value\": {\"name\": \"%s\", \"total\": %zu, \"computed\": %s, "
           "\"refused\": \"%s\", \"refused_too\": [], \"given_back\": %s}}\n",
           name, total, computed ? "true" : "false", refused,
           free_bytes() == before ? "true" : "false");
    fflush(stdout);
    getchar();
}
