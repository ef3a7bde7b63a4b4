/* Copies and settings: doing them, and how long they take. */
#include "cuda/copies.h"

#include <string.h>

#include "cuda/blocks.h"

#define COPY_START_NS (2 * NS_PER_US)
#define COPY_BYTES_PER_NS 12 /* 12 GB/s, as over PCIe of generation 3 */
#define SET_START_NS (1 * NS_PER_US)
#define SET_BYTES_PER_NS 500

bool place_on_device(CUdeviceptr address, size_t bytes)
{
    return block_covers(address, bytes);
}

bool setting_fits(const struct setting *setting)
{
    size_t row_bytes, bytes;
    return !__builtin_mul_overflow(setting->width, setting->element_bytes, &row_bytes) &&
           !__builtin_mul_overflow(setting->to.pitch_bytes, setting->height - 1, &bytes) &&
           !__builtin_add_overflow(bytes, row_bytes, &bytes) &&
           place_on_device((CUdeviceptr)setting->to.start, bytes);
}

struct copy copy_linear(const void *to, const void *from, size_t bytes)
{
    return (struct copy){
        .from = {.start = (char *)from},
        .to = {.start = (char *)to},
        .width_bytes = bytes,
        .height = 1,
        .depth = 1,
    };
}

void copy_move(const struct copy *copy)
{
    for (size_t z = 0; z < copy->depth; z++)
        for (size_t y = 0; y < copy->height; y++)
            memmove(copy->to.start + z * copy->to.plane_bytes + y * copy->to.pitch_bytes,
                    copy->from.start + z * copy->from.plane_bytes + y * copy->from.pitch_bytes,
                    copy->width_bytes);
}

static void set_row(char *row, const struct setting *setting)
{
    if (setting->element_bytes == 1) {
        memset(row, (int)setting->value, setting->width);
        return;
    }
    for (size_t x = 0; x < setting->width; x++)
        memcpy(row + x * setting->element_bytes, &setting->value, setting->element_bytes);
}

void setting_apply(const struct setting *setting)
{
    for (size_t y = 0; y < setting->height; y++)
        set_row(setting->to.start + y * setting->to.pitch_bytes, setting);
}

uint64_t copy_duration_ns(const struct copy *copy)
{
    return COPY_START_NS + copy->width_bytes * copy->height * copy->depth / COPY_BYTES_PER_NS;
}

uint64_t setting_duration_ns(const struct setting *setting)
{
    uint64_t bytes = (uint64_t)setting->element_bytes * setting->width * setting->height;
    return SET_START_NS + bytes / SET_BYTES_PER_NS;
}

CUresult copy_on(struct stream *stream, const struct copy *copy, bool wait)
{
    copy_move(copy);
    stream_occupy(stream, copy_duration_ns(copy));
    return wait ? stream_wait(stream) : CUDA_SUCCESS;
}

CUresult setting_on(struct stream *stream, const struct setting *setting)
{
    setting_apply(setting);
    stream_occupy(stream, setting_duration_ns(setting));
    return CUDA_SUCCESS;
}

CUDA_MEMCPY3D copy_params(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from,
                          CUmemorytype from_type, size_t bytes)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = from_type,
        .srcHost = (const void *)from,
        .srcDevice = from,
        .dstMemoryType = to_type,
        .dstHost = (void *)to,
        .dstDevice = to,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1,
    };
}
