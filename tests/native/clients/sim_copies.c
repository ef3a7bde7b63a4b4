/* Device memory that really holds bytes: copies, settings, arrays. */
#include "sim_check.h"

enum { SIZE = 3000, PITCH = 128, WIDTH = 100, ROWS = 20, PLANES = 3 };

static unsigned char data[2 * SIZE], back[2 * SIZE];

static void linear(void)
{
    pattern(data, SIZE, 1);
    CUdeviceptr one = device_bytes(data, SIZE), other = device_bytes(data, SIZE);
    OK(cuMemsetD8(other, 0, SIZE));
    OK(cuMemcpyDtoD(other + 10, one + 5, SIZE - 10));
    CHECK(holds(other + 10, data + 5, SIZE - 10));
    OK(cuMemcpy(other, one, SIZE));
    CHECK(holds(other, data, SIZE));
    OK(cuMemcpyHtoDAsync(one, data + 1, SIZE - 1, NULL));
    OK(cuMemcpyDtoDAsync(other, one, SIZE - 1, NULL));
    OK(cuMemcpyDtoHAsync(back, other, SIZE - 1, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK(!memcmp(back, data + 1, SIZE - 1));
    OK(cuMemFree(one));
    OK(cuMemFree(other));
}

static void outside(void)
{
    CUdeviceptr pointer = device_bytes(data, SIZE), none;
    INVALID(cuMemcpyHtoD(pointer + 1, data, SIZE));
    INVALID(cuMemcpyDtoH(back, pointer - 1, 1));
    INVALID(cuMemsetD8(pointer, 0, SIZE + 1));
    INVALID(cuMemsetD32(pointer + 2, 0, 1));
    INVALID(cuMemsetD2D8(pointer, (size_t)1 << 63, 0, 1, 3)); /* the third row would be the first */
    INVALID(cuMemAlloc(&none, 0));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc(&none, (size_t)1 << 60));
    INVALID(cuMemFree(pointer + 1));
    OK(cuMemFree(pointer));
    INVALID(cuMemFree(pointer));
    INVALID(cuMemcpyDtoH(back, pointer, 1));
    OK(cuMemFree(0));
}

static void settings(void)
{
    CUdeviceptr pointer;
    size_t pitch;
    memset(data, 0xab, SIZE);
    OK(cuMemAllocPitch(&pointer, &pitch, WIDTH, ROWS, 4));
    CHECK(pitch >= WIDTH && pitch % 4 == 0);
    OK(cuMemsetD2D8(pointer, pitch, 0, pitch, ROWS));
    OK(cuMemsetD2D8(pointer, pitch, 0xab, WIDTH, ROWS));
    for (size_t y = 0; y < ROWS; y++)
        CHECK(holds(pointer + y * pitch, data, WIDTH));
    memset(data, 0, SIZE);
    CHECK(holds(pointer + WIDTH, data, pitch - WIDTH));
    OK(cuMemsetD32(pointer, 0x04030201, 2));
    OK(cuMemsetD16(pointer + 8, 0x0605, 1));
    OK(cuMemsetD2D32Async(pointer + 12, pitch, 0x0a090807, 1, 2, NULL));
    OK(cuMemsetD2D16(pointer + 16, pitch, 0x0c0b, 1, 2));
    CHECK(holds(pointer, "\1\2\3\4\1\2\3\4\5\6\xab\xab\7\x08\x09\x0a\x0b\x0c", 18));
    CHECK(holds(pointer + pitch + 12, "\7\x08\x09\x0a\x0b\x0c", 6));
    OK(cuMemFree(pointer));
}

/* A window of rows out of the middle, between memory of different pitches. */
static void rows(void)
{
    pattern(data, SIZE, 2);
    CUdeviceptr from = device_bytes(data, SIZE), to;
    OK(cuMemAlloc(&to, SIZE));
    CUDA_MEMCPY2D across = {.srcXInBytes = 3,
                            .srcY = 2,
                            .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = from,
                            .srcPitch = PITCH,
                            .dstXInBytes = 1,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = to,
                            .dstPitch = 40,
                            .WidthInBytes = 32,
                            .Height = 10};
    OK(cuMemcpy2D(&across));
    for (size_t y = 0; y < across.Height; y++)
        CHECK(holds(to + y * 40 + 1, data + (y + 2) * PITCH + 3, 32));
    across.dstMemoryType = CU_MEMORYTYPE_HOST;
    across.dstHost = back;
    OK(cuMemcpy2DUnaligned(&across));
    CHECK(!memcmp(back + 41, data + 3 * PITCH + 3, 32));
    across.dstPitch = 32;
    INVALID(cuMemcpy2D(&across));
    across.dstPitch = 40;
    across.srcPitch = (size_t)1 << 63; /* every second row would be the first */
    INVALID(cuMemcpy2D(&across));
    across.srcPitch = PITCH;
    across.srcY = SIZE_MAX / PITCH + 1; /* a row before the first, if one counted that far */
    INVALID(cuMemcpy2D(&across));
    OK(cuMemFree(from));
    OK(cuMemFree(to));
}

static void planes(void)
{
    pattern(data, 2 * SIZE, 3);
    CUdeviceptr from = device_bytes(data, 2 * SIZE), to;
    OK(cuMemAlloc(&to, SIZE));
    CUDA_MEMCPY3D across = {.srcZ = 1,
                            .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                            .srcDevice = from,
                            .srcPitch = 64,
                            .srcHeight = ROWS,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = to,
                            .dstPitch = 50,
                            .dstHeight = 10,
                            .WidthInBytes = 50,
                            .Height = 10,
                            .Depth = PLANES};
    OK(cuMemcpy3DAsync(&across, NULL));
    for (size_t z = 0; z < PLANES; z++)
        for (size_t y = 0; y < 10; y++)
            CHECK(holds(to + (z * 10 + y) * 50, data + ((z + 1) * ROWS + y) * 64, 50));
    OK(cuMemFree(from));
    OK(cuMemFree(to));
}

static void arrays(void)
{
    CUDA_ARRAY_DESCRIPTOR shape = {25, ROWS, CU_AD_FORMAT_FLOAT, 1}, seen;
    CUarray array, other;
    size_t before = free_bytes();
    pattern(data, SIZE, 4);
    OK(cuArrayCreate(&array, &shape));
    OK(cuArrayCreate(&other, &shape));
    CHECK(before - free_bytes() >= 2 * WIDTH * ROWS);
    OK(cuArrayGetDescriptor(&seen, array));
    CHECK(!memcmp(&seen, &shape, sizeof seen));
    CUdeviceptr pointer = device_bytes(data, WIDTH * ROWS);
    OK(cuMemcpyHtoA(array, 0, data, WIDTH * ROWS));
    OK(cuMemcpyAtoA(other, 0, array, WIDTH, WIDTH));
    OK(cuMemcpyAtoH(back, other, 0, WIDTH));
    CHECK(!memcmp(back, data + WIDTH, WIDTH));
    OK(cuMemcpyDtoA(other, WIDTH, pointer, WIDTH));
    OK(cuMemcpyAtoD(pointer, other, 0, 2 * WIDTH));
    CHECK(holds(pointer, data + WIDTH, WIDTH) && holds(pointer + WIDTH, data, WIDTH));
    INVALID(cuMemcpyHtoA(array, 1, data, WIDTH * ROWS));
    OK(cuMemFree(pointer));
    OK(cuArrayDestroy(array));
    OK(cuArrayDestroy(other));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(other));
}

/* Rows of the host into the middle of an array, and planes of it back. */
static void shaped_arrays(void)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {16, 8, PLANES, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0};
    CUarray array;
    OK(cuArray3DCreate(&array, &shape));
    pattern(data, SIZE, 5);
    CUDA_MEMCPY3D across = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                            .srcHost = data,
                            .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                            .dstArray = array,
                            .WidthInBytes = 64,
                            .Height = 8,
                            .Depth = PLANES};
    OK(cuMemcpy3D(&across));
    across = (CUDA_MEMCPY3D){.srcXInBytes = 4,
                             .srcY = 1,
                             .srcZ = 2,
                             .srcMemoryType = CU_MEMORYTYPE_ARRAY,
                             .srcArray = array,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = back,
                             .WidthInBytes = 60,
                             .Height = 7,
                             .Depth = 1};
    OK(cuMemcpy3D(&across));
    for (size_t y = 0; y < 7; y++)
        CHECK(!memcmp(back + y * 60, data + (2 * 8 + y + 1) * 64 + 4, 60));
    across.Height = 8;
    INVALID(cuMemcpy3D(&across));
    OK(cuArrayDestroy(array));
}

static void mipmaps(void)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {64, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, seen;
    CUmipmappedArray mipmap;
    CUarray level;
    OK(cuMipmappedArrayCreate(&mipmap, &shape, 7));
    for (unsigned i = 0; i < 7; i++) {
        OK(cuMipmappedArrayGetLevel(&level, mipmap, i));
        OK(cuArray3DGetDescriptor(&seen, level));
        CHECK(seen.Width == 64u >> i && seen.Height == 64u >> i);
        memset(data, (int)i + 1, SIZE);
        OK(cuMemcpyHtoA(level, 0, data, 64u >> i));
    }
    for (unsigned i = 0; i < 7; i++) {
        OK(cuMipmappedArrayGetLevel(&level, mipmap, i));
        OK(cuMemcpyAtoH(back, level, 0, 64u >> i));
        CHECK(back[0] == i + 1 && back[(64u >> i) - 1] == i + 1);
    }
    INVALID(cuMipmappedArrayGetLevel(&level, mipmap, 7));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(level));
    OK(cuMipmappedArrayDestroy(mipmap));
}

static const struct area AREAS[] = {
    {"linear", linear},
    {"outside", outside},
    {"settings", settings},
    {"rows", rows},
    {"planes", planes},
    {"arrays", arrays},
    {"shaped arrays", shaped_arrays},
    {"mipmaps", mipmaps},
};

int main(int count, char **names)
{
    return run_areas(AREAS, COUNT(AREAS), count, names);
}
