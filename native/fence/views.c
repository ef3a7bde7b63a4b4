/* The share, shown as if it were the card. The driver is asked first, so that it judges the
 * arguments and what is shown is never more than it has. */
#include "fence.h"
#include <limits.h>

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t free_share(int card, uint64_t card_free_bytes)
{
    uint64_t limit = quota_limit(card), used = quota_used(card);
    return smaller(card_free_bytes, limit > used ? limit - used : 0);
}

static CUresult with_card(int *card)
{
    int state = fence_enter();
    *card = NOT_GRANTED;
    if (state == FENCE_HELD) /* whoever has one card can have a context on no other */
        *card = fence_limits->cards == 1 ? 0 : place_current().card;
    return state == FENCE_HELD || state == FENCE_OPEN ? CUDA_SUCCESS : fence_refusal(state);
}

WHOLE CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    int card;
    CUresult result = with_card(&card);
    if (result)
        return result;
    result = REAL(cuMemGetInfo_v2)(free_bytes, total_bytes);
    if (result || card < 0)
        return result;
    pools_refresh();
    if (free_bytes)
        *free_bytes = free_share(card, *free_bytes);
    if (total_bytes)
        *total_bytes = smaller(*total_bytes, quota_limit(card));
    return result;
}

/* The old form counts in 32 bits, as the driver's own does. */
CUresult cuMemGetInfo(unsigned *free_bytes, unsigned *total_bytes)
{
    size_t free_now = 0, total_now = 0;
    CUresult result = cuMemGetInfo_v2(free_bytes ? &free_now : NULL, total_bytes ? &total_now : NULL);
    if (!result && free_bytes)
        *free_bytes = (unsigned)smaller(free_now, UINT_MAX);
    if (!result && total_bytes)
        *total_bytes = (unsigned)smaller(total_now, UINT_MAX);
    return result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    int state = fence_enter();
    if (state != FENCE_HELD && state != FENCE_OPEN)
        return fence_refusal(state);
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, device);
    if (!result && state == FENCE_HELD && bytes) /* none of a card that is not granted */
        *bytes = smaller(*bytes, quota_limit(card_of_device(device)));
    return result;
}

CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    size_t total = 0;
    CUresult result = cuDeviceTotalMem_v2(bytes ? &total : NULL, device);
    if (!result && bytes)
        *bytes = (unsigned)smaller(total, UINT_MAX);
    return result;
}
