/* Code: modules, libraries, kernels and what can be asked about them. */
#include "sim_check.h"

enum { ELEMENTS = 1000 };

static CUmodule module;

static CUfunction function(const char *name)
{
    CUfunction found;
    OK(cuModuleGetFunction(&found, module, name));
    return found;
}

static void load(void)
{
    OK(cuModuleLoadData(&module, IMAGE));
}

static void unload(void)
{
    OK(cuModuleUnload(module));
}

static void modules(void)
{
    size_t before = free_bytes(), bytes;
    CUdeviceptr table;
    CUfunction found;
    CUmodule wrong;
    load();
    CHECK(before - free_bytes() >= sizeof IMAGE - 1);
    OK(cuModuleGetGlobal(&table, &bytes, module, "table"));
    CHECK(bytes == 64 && holds(table, (char[64]){0}, 64));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&found, module, "nothing"));
    EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&table, &bytes, module, "vadd"));
    EXPECT(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&wrong, "this is no image"));
    EXPECT(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&wrong, "/nowhere/image.ptx"));
    CHECK(function("vadd") == function("vadd") && function("vadd") != function("fill"));
    unload();
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    CHECK(free_bytes() == before);
}

/* A variable costs what it holds, from the moment its module is there. */
static void variables(void)
{
    char image[1024];
    size_t before = free_bytes();
    snprintf(image, sizeof image, "%s.global .align 8 .b64 large[%zu];\n", IMAGE, MIB / 2);
    OK(cuModuleLoadData(&module, image));
    size_t cost = before - free_bytes();
    CHECK(cost >= 4 * MIB && cost < 4 * MIB + 4096);
    unload();
    snprintf(image, sizeof image, "%s.global .b8 large[%zu];\n", IMAGE, 2048 * MIB);
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuModuleLoadData(&module, image));
}

static void libraries(void)
{
    CUlibrary library;
    CUkernel kernel, kernels[3];
    CUfunction found;
    CUmodule own;
    unsigned count;
    const char *name;
    size_t offset, bytes;
    OK(cuLibraryLoadData(&library, IMAGE, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernelCount(&count, library));
    CHECK(count == 3);
    OK(cuLibraryEnumerateKernels(kernels, count, library));
    OK(cuLibraryGetKernel(&kernel, library, "vadd"));
    OK(cuKernelGetName(&name, kernel));
    OK(cuKernelGetParamInfo(kernel, 3, &offset, &bytes));
    CHECK(!strcmp(name, "vadd") && offset == 24 && bytes == 4);
    INVALID(cuKernelGetParamInfo(kernel, 4, &offset, &bytes));
    OK(cuKernelGetFunction(&found, kernel));
    OK(cuLibraryGetModule(&own, library));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(own));
    OK(cuLibraryUnload(library));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuKernelGetName(&name, kernel));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuFuncGetName(&name, found));
}

/* PTX inside of a fat binary, as nvcc makes it. */
static void fat_binaries(void)
{
    struct {
        unsigned magic;
        unsigned short version, header_bytes;
        unsigned long long bytes;
        unsigned short kind, part_version;
        unsigned part_header_bytes;
        unsigned long long part_bytes;
        char padding[48], image[sizeof IMAGE + 8];
    } fat = {0xba55ed50, 1, 16, 64 + sizeof fat.image, 1, 0x101, 64, sizeof fat.image, {0}, "//\n"};
    strcat(fat.image, IMAGE);
    OK(cuModuleLoadFatBinary(&module, &fat));
    CHECK(function("vadd") && function("spin_us"));
    unload();
}

static void linking(void)
{
    CUlinkState state;
    void *image;
    size_t bytes;
    OK(cuLinkCreate(0, NULL, NULL, &state));
    OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)IMAGE, sizeof IMAGE, "image", 0, NULL, NULL));
    OK(cuLinkComplete(state, &image, &bytes));
    OK(cuModuleLoadData(&module, image));
    OK(cuLinkDestroy(state));
    CHECK(function("fill"));
    unload();
}

/* Kernels that the driver computes do so, with arguments in either form. */
static void kernels(void)
{
    float a[ELEMENTS], b[ELEMENTS], sum[ELEMENTS];
    int count = ELEMENTS;
    for (int i = 0; i < ELEMENTS; i++)
        a[i] = (float)i, b[i] = 2 * (float)i, sum[i] = 3 * (float)i;
    CUdeviceptr one = device_bytes(a, sizeof a), other = device_bytes(b, sizeof b), result;
    OK(cuMemAlloc(&result, sizeof sum));
    load();
    void *arguments[] = {&one, &other, &result, &count};
    OK(cuLaunchKernel(function("vadd"), 4, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
    CHECK(holds(result, sum, sizeof sum));
    struct {
        CUdeviceptr to;
        unsigned value;
        int count;
    } packed = {result, 0x40a00000, ELEMENTS}; /* 5.0 */
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(function("fill"), 4, 1, 1, 256, 1, 1, 0, NULL, NULL, extra));
    for (int i = 0; i < ELEMENTS; i++)
        sum[i] = 5;
    CHECK(holds(result, sum, sizeof sum));
    count++;
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS,
           cuLaunchKernel(function("vadd"), 4, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
    unload();
    OK(cuMemFree(one));
    OK(cuMemFree(other));
    OK(cuMemFree(result));
}

/* Launching as it was done before CUDA 4: deprecated, and still in every driver. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void old_launches(void)
{
    CUdeviceptr pointer;
    OK(cuMemAlloc(&pointer, 16));
    load();
    OK(cuFuncSetBlockShape(function("fill"), 4, 1, 1));
    OK(cuParamSetv(function("fill"), 0, &pointer, sizeof pointer));
    OK(cuParamSeti(function("fill"), 8, 7));
    OK(cuParamSeti(function("fill"), 12, 4));
    OK(cuParamSetSize(function("fill"), 16));
    OK(cuLaunchGrid(function("fill"), 1, 1));
    CHECK(holds(pointer, (unsigned[]){7, 7, 7, 7}, 16));
    unload();
    OK(cuMemFree(pointer));
}
#pragma GCC diagnostic pop

static void wrong_launches(void)
{
    unsigned us = 1;
    void *arguments[] = {&us}, *none[] = {NULL};
    load();
    CUfunction kernel = function("spin_us");
    INVALID(cuLaunchKernel(kernel, 0, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    INVALID(cuLaunchKernel(kernel, 1, 1, 1, 1025, 1, 1, 0, NULL, arguments, NULL));
    INVALID(cuLaunchKernel(kernel, 1, 65536, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    INVALID(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, none));
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cuLaunchKernel((CUfunction)&us, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, (CUstream)&us, arguments, NULL));
    unload();
    EXPECT(CUDA_ERROR_INVALID_HANDLE,
           cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
}

static void occupancy(void)
{
    int blocks, grid, block, value;
    load();
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function("vadd"), 256, 0));
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function("vadd"), NULL, 0, 0));
    CHECK(blocks == 8 && grid > 0 && block == 1024);
    OK(cuFuncSetAttribute(function("vadd"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 999));
    OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                          function("vadd")));
    CHECK(value == 999);
    unload();
}

static void textures(void)
{
    CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY}, seen;
    CUDA_TEXTURE_DESC texture = {.filterMode = CU_TR_FILTER_MODE_LINEAR};
    CUtexObject object;
    CUsurfObject surface;
    OK(cuArrayCreate(&resource.res.array.hArray, &shape));
    OK(cuTexObjectCreate(&object, &resource, &texture, NULL));
    OK(cuTexObjectGetResourceDesc(&seen, object));
    CHECK(seen.res.array.hArray == resource.res.array.hArray);
    OK(cuSurfObjectCreate(&surface, &resource));
    OK(cuSurfObjectDestroy(surface));
    OK(cuTexObjectDestroy(object));
    INVALID(cuTexObjectDestroy(object));
    OK(cuArrayDestroy(resource.res.array.hArray));
}

static const struct area AREAS[] = {
    {"modules", modules},
    {"variables", variables},
    {"libraries", libraries},
    {"fat binaries", fat_binaries},
    {"linking", linking},
    {"kernels", kernels},
    {"old launches", old_launches},
    {"wrong launches", wrong_launches},
    {"occupancy", occupancy},
    {"textures", textures},
};

int main(int count, char **names)
{
    return run_areas(AREAS, COUNT(AREAS), count, names);
}
