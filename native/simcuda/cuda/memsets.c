/* Setting memory to a value of 8, 16 or 32 bits, in rows or not. */
#include "cuda/captures.h"
#include "cuda/copies.h"

static CUresult set(CUdeviceptr start, size_t pitch, unsigned value, unsigned element_bytes,
                    size_t width, size_t height, CUstream handle)
{
    ENTER_STREAM(stream, handle);
    if (!width || !height)
        return CUDA_SUCCESS;
    REQUIRE_VALUE(start && start % element_bytes == 0);
    struct setting setting = {
        .to = {.start = (char *)start, .pitch_bytes = pitch},
        .value = value,
        .element_bytes = element_bytes,
        .width = width,
        .height = height,
    };
    if (stream->capture)
        return capture_setting(stream, &setting);
    REQUIRE_VALUE(setting_fits(&setting));
    return setting_on(stream, &setting);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    return set(dstDevice, 0, uc, 1, N, 1, hStream);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    return set(dstDevice, 0, us, 2, N, 1, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    return set(dstDevice, 0, ui, 4, N, 1, hStream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream)
{
    return set(dstDevice, dstPitch, uc, 1, Width, Height, hStream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream)
{
    return set(dstDevice, dstPitch, us, 2, Width, Height, hStream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream)
{
    return set(dstDevice, dstPitch, ui, 4, Width, Height, hStream);
}

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return set(dstDevice, 0, uc, 1, N, 1, 0);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return set(dstDevice, 0, us, 2, N, 1, 0);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return set(dstDevice, 0, ui, 4, N, 1, 0);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height)
{
    return set(dstDevice, dstPitch, uc, 1, Width, Height, 0);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height)
{
    return set(dstDevice, dstPitch, us, 2, Width, Height, 0);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height)
{
    return set(dstDevice, dstPitch, ui, 4, Width, Height, 0);
}
