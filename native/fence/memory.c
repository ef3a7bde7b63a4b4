/* Linear memory: cuMemAlloc and its relatives. An unknown pointer is the driver's business. */
#include "fence.h"

WHOLE CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, bytes);
    if (unlikely(result))
        return result;
    result = REAL(cuMemAlloc_v2)(pointer, bytes);
    return charge_end(&charge, result, LEDGER_MEMORY, result ? 0 : *pointer);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned bytes)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, bytes);
    if (result)
        return result;
    result = REAL(cuMemAlloc)(pointer, bytes);
    return charge_end(&charge, result, LEDGER_MEMORY, result ? 0 : *pointer);
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, bytes);
    if (result)
        return result;
    result = REAL(cuMemAllocManaged)(pointer, bytes, flags);
    return charge_end(&charge, result, LEDGER_MEMORY, result ? 0 : *pointer);
}

/* Rows begin at multiples of this on every card so far; the driver tells the true pitch after. */
enum { USUAL_PITCH_BYTES = 512 };

static uint64_t area(uint64_t pitch, uint64_t rows)
{
    uint64_t bytes;
    return __builtin_mul_overflow(pitch, rows, &bytes) ? NEVER_FITS : bytes;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                            unsigned element)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, area(round_up(width, USUAL_PITCH_BYTES), height));
    if (result)
        return result;
    result = REAL(cuMemAllocPitch_v2)(pointer, pitch, width, height, element);
    if (!result && !charge_settle(&charge, area(*pitch, height))) {
        REAL(cuMemFree_v2)(*pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(&charge, result, LEDGER_MEMORY, result ? 0 : *pointer);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned *pitch, unsigned width, unsigned height,
                         unsigned element)
{
    struct charge charge;
    CUresult result = charge_begin(&charge, area(round_up(width, USUAL_PITCH_BYTES), height));
    if (result)
        return result;
    result = REAL(cuMemAllocPitch)(pointer, pitch, width, height, element);
    if (!result && !charge_settle(&charge, area(*pitch, height))) {
        REAL(cuMemFree)(*pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return charge_end(&charge, result, LEDGER_MEMORY, result ? 0 : *pointer);
}

WHOLE CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return GIVE_BACK(LEDGER_MEMORY, pointer, REAL(cuMemFree_v2)(pointer));
}

CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    return GIVE_BACK(LEDGER_MEMORY, pointer, REAL(cuMemFree)(pointer));
}

/* Of a pool's memory nothing is written down here: see pools.c. While a stream is captured nothing
 * is freed: a graph will do it. */
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    if (fence_enter() == FENCE_HELD && stream_capturing(stream, false))
        return REAL(cuMemFreeAsync)(pointer, stream);
    return GIVE_BACK(LEDGER_MEMORY, pointer, REAL(cuMemFreeAsync)(pointer, stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    if (fence_enter() == FENCE_HELD && stream_capturing(stream, true))
        return REAL(cuMemFreeAsync_ptsz)(pointer, stream);
    return GIVE_BACK(LEDGER_MEMORY, pointer, REAL(cuMemFreeAsync_ptsz)(pointer, stream));
}
