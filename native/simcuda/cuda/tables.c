/* cuGetExportTable: the real driver's tables are known to NVIDIA's own libraries alone. This one has an
 * identity of our own, for who wants to try what such a table is: functions that no name leads to. */
#include "cuda/api.h"

#include <string.h>

static const CUuuid identity = {"simcuda's table"}; /* 15 letters and a 0 */

static const struct {
    size_t bytes; /* first, as in the real ones */
    CUresult (*allocate)(CUdeviceptr *start, size_t bytes);
} table = {sizeof table, cuMemAlloc_v2};

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId)
{
    if (!ppExportTable || !pExportTableId)
        return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(pExportTableId, &identity, sizeof identity))
        return CUDA_ERROR_NOT_SUPPORTED;
    *ppExportTable = &table;
    return CUDA_SUCCESS;
}
