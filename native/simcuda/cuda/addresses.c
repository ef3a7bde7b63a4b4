/* cuGetProcAddress: a function by name, CUDA version and kind of default stream. */
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "cuda/offers.h"

static unsigned first_offer(const char *name)
{
    unsigned low = 0, high = offer_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (strcmp(offers[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The latest offer of a name that is not newer than asked for; -1 if there is none. */
static int best_offer(const char *name, int version, int per_thread)
{
    int best = -1;
    for (unsigned i = first_offer(name); i < offer_count && !strcmp(offers[i].name, name); i++)
        if (offers[i].version <= version && offers[i].per_thread == per_thread)
            best = (int)i;
    return best;
}

static bool offered(const char *name)
{
    unsigned first = first_offer(name);
    return first < offer_count && !strcmp(offers[first].name, name) &&
           offers[first].version <= driver_cuda_version();
}

static void *find(const char *name, int version, cuuint64_t flags)
{
    const char *alias = getenv("SIMCUDA_ALIAS");
    int best = -1;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        best = best_offer(name, version, 1);
    if (best < 0)
        best = best_offer(name, version, 0);
    if (best < 0)
        return 0;
    return alias && *alias == '1' ? offer_alias((unsigned)best) : offers[best].function;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    if (!symbol || !pfn || cudaVersion > driver_cuda_version())
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = find(symbol, cudaVersion, flags);
    if (!*pfn)
        status = offered(symbol) ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (symbolStatus)
        *symbolStatus = status;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUresult result = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, 0);
    return result || *pfn ? result : CUDA_ERROR_NOT_FOUND;
}
