/* Kinds of memory, and what they cost: mappings, managed and pinned memory, pools, contexts. */
#include "sim_check.h"

#include <unistd.h>

enum { SIZE = 3000 };

static unsigned char data[SIZE], back[SIZE];

static const CUmemAllocationProp ON_CARD = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
};
static const CUmemAccessDesc READ_WRITE = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

/* The same memory at two addresses, one of them across two pieces. */
static void mappings(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    size_t step, before = free_bytes();
    OK(cuMemGetAllocationGranularity(&step, &ON_CARD, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemCreate(&handle, 2 * step, &ON_CARD, 0));
    CHECK(before - free_bytes() == 2 * step);
    OK(cuMemAddressReserve(&at, 4 * step, 0, 0, 0));
    OK(cuMemMap(at, 2 * step, 0, handle, 0));
    INVALID(cuMemcpyHtoD(at, data, 1));
    OK(cuMemSetAccess(at, 2 * step, &READ_WRITE, 1));
    OK(cuMemMap(at + 2 * step, step, step, handle, 0));
    OK(cuMemSetAccess(at + 2 * step, step, &READ_WRITE, 1));
    INVALID(cuMemMap(at + step, step, 0, handle, 0));
    pattern(data, SIZE, 6);
    OK(cuMemcpyHtoD(at + step - 10, data, SIZE));
    CHECK(holds(at + 2 * step, data + 10, SIZE - 10));
    OK(cuMemcpyHtoD(at + 2 * step - 10, data, SIZE)); /* from one mapping into the next */
    CHECK(holds(at + 2 * step, data + 10, SIZE - 10));
    OK(cuMemUnmap(at, 2 * step));
    INVALID(cuMemcpyDtoH(back, at, 1));
    OK(cuMemRelease(handle));
    CHECK(holds(at + 2 * step, data + 10, SIZE - 10) && free_bytes() < before);
    INVALID(cuMemAddressFree(at, 4 * step));
    OK(cuMemUnmap(at + 2 * step, step));
    OK(cuMemAddressFree(at, 4 * step));
}

/* Memory goes to others as a file, and comes back as the same memory, counted once. */
static void shared_mappings(void)
{
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr at;
    int file;
    OK(cuMemCreate(&handle, 2 * MIB, &ON_CARD, 0));
    OK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    size_t before = free_bytes();
    OK(cuMemImportFromShareableHandle(&again, (void *)(size_t)file,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK(free_bytes() == before);
    OK(cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
    OK(cuMemMap(at, 2 * MIB, 0, handle, 0));
    OK(cuMemMap(at + 2 * MIB, 2 * MIB, 0, again, 0));
    OK(cuMemSetAccess(at, 4 * MIB, &READ_WRITE, 1));
    pattern(data, SIZE, 7);
    OK(cuMemcpyHtoD(at, data, SIZE));
    CHECK(holds(at + 2 * MIB, data, SIZE));
    OK(cuMemUnmap(at, 4 * MIB));
    OK(cuMemAddressFree(at, 4 * MIB));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(again));
    close(file);
}

static void managed(void)
{
    CUdeviceptr pointer;
    unsigned char is_managed;
    size_t before = free_bytes();
    OK(cuMemAllocManaged(&pointer, SIZE, CU_MEM_ATTACH_GLOBAL));
    CHECK(free_bytes() < before);
    OK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer));
    CHECK(is_managed);
    pattern((void *)pointer, SIZE, 8); /* the host writes into it as into its own memory */
    pattern(data, SIZE, 8);
    CHECK(holds(pointer, data, SIZE));
    OK(cuMemsetD8(pointer, 9, 1));
    CHECK(*(unsigned char *)pointer == 9);
    OK(cuMemPrefetchAsync(pointer, SIZE, READ_WRITE.location, 0, NULL));
    OK(cuMemFree(pointer));
}

static void pinned(void)
{
    void *host;
    CUdeviceptr pointer;
    unsigned flags;
    size_t before = free_bytes();
    OK(cuMemHostAlloc(&host, SIZE, CU_MEMHOSTALLOC_DEVICEMAP));
    OK(cuMemHostGetDevicePointer(&pointer, host, 0));
    OK(cuMemHostGetFlags(&flags, host));
    CHECK(flags == CU_MEMHOSTALLOC_DEVICEMAP && free_bytes() == before);
    pattern(host, SIZE, 9);
    CHECK(holds(pointer, host, SIZE));
    OK(cuMemHostRegister(data, SIZE, 0));
    EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister(data, SIZE, 0));
    OK(cuMemHostUnregister(data));
    EXPECT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(data));
    OK(cuMemFreeHost(host));
    INVALID(cuMemFreeHost(host));
}

static cuuint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
    cuuint64_t value;
    OK(cuMemPoolGetAttribute(pool, which, &value));
    return value;
}

/* What is freed stays reserved until somebody synchronizes, and beyond that up to the threshold. */
static void pools(void)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemoryPool pool;
    CUdeviceptr one, other;
    cuuint64_t keep = 8 * MIB;
    size_t before = free_bytes();
    OK(cuMemPoolCreate(&pool, &properties));
    OK(cuMemAllocFromPoolAsync(&one, 10 * MIB, pool, NULL));
    OK(cuMemAllocFromPoolAsync(&other, 2 * MIB, pool, NULL));
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 12 * MIB);
    CHECK(before - free_bytes() == attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
    OK(cuMemFreeAsync(one, NULL));
    CHECK(before - free_bytes() == 12 * MIB);
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuCtxSynchronize());
    CHECK(before - free_bytes() == 8 * MIB);
    OK(cuMemPoolTrimTo(pool, 0));
    CHECK(before - free_bytes() == 2 * MIB);
    CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 12 * MIB);
    OK(cuMemPoolDestroy(pool));
    pattern(data, SIZE, 10);
    OK(cuMemcpyHtoD(other, data, SIZE)); /* it lives on until its last memory is freed */
    CHECK(holds(other, data, SIZE));
    OK(cuMemFree(other));
}

/* A pool gives up what it only keeps before anybody is refused. */
static void pools_make_room(void)
{
    CUmemoryPool pool;
    CUdeviceptr pointer;
    cuuint64_t everything = UINT64_MAX;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    size_t most = free_bytes() / (2 * MIB) * (2 * MIB);
    OK(cuMemAllocAsync(&pointer, most, NULL));
    OK(cuMemFreeAsync(pointer, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK(free_bytes() < 2 * MIB);
    OK(cuMemAlloc(&pointer, most));
    OK(cuMemFree(pointer));
    everything = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
}

/* One that has to shrink itself before it can grow: what it keeps is not in one piece. */
static void pools_grow_on_a_full_card(void)
{
    CUmemoryPool pool;
    CUdeviceptr used, kept, more;
    cuuint64_t everything = UINT64_MAX;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
    size_t third = free_bytes() / 3 / (2 * MIB) * (2 * MIB);
    OK(cuMemAllocAsync(&used, third, NULL));
    OK(cuMemAllocAsync(&kept, third, NULL));
    OK(cuMemFreeAsync(kept, NULL));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&more, 3 * third, NULL));
    OK(cuMemAllocAsync(&more, 2 * third, NULL));
    OK(cuMemFreeAsync(more, NULL));
    OK(cuMemFreeAsync(used, NULL));
    everything = 0;
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything));
}

static void contexts(void)
{
    CUcontext first, second, seen;
    CUdeviceptr pointer;
    size_t before = free_bytes();
    OK(cuCtxCreate(&first, NULL, 0, 0));
    size_t cost = before - free_bytes();
    CHECK(cost > 0);
    OK(cuMemAlloc(&pointer, SIZE));
    OK(cuCtxCreate(&second, NULL, 0, 0));
    CHECK(before - free_bytes() > 2 * cost);
    OK(cuCtxPopCurrent(&seen));
    CHECK(seen == second);
    OK(cuCtxDestroy(first)); /* and all that is in it */
    CHECK(before - free_bytes() == cost);
    OK(cuCtxPushCurrent(second));
    INVALID(cuMemFree(pointer));
    OK(cuCtxDestroy(second));
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy(second));
}

/* Sooner or later a further one is refused; then it costs nothing. */
static void many_contexts(void)
{
    CUcontext contexts[1000];
    CUresult result;
    int count = 0;
    while (!(result = cuCtxCreate(&contexts[count], NULL, 0, 0)))
        CHECK(++count < (int)COUNT(contexts));
    EXPECT(CUDA_ERROR_OUT_OF_MEMORY, result);
    while (count)
        OK(cuCtxDestroy(contexts[--count]));
}

/* Between two cards, each of which counts its own. */
static void peers(void)
{
    CUcontext here, there;
    CUdeviceptr far;
    int reach;
    pattern(data, SIZE, 11);
    CUdeviceptr near = device_bytes(data, SIZE);
    OK(cuCtxGetCurrent(&here));
    OK(cuDeviceCanAccessPeer(&reach, 0, 1));
    CHECK(reach);
    size_t left = free_bytes();
    OK(cuDevicePrimaryCtxRetain(&there, 1));
    OK(cuCtxSetCurrent(there));
    OK(cuMemAlloc(&far, SIZE));
    OK(cuMemcpyPeer(far, there, near, here, SIZE));
    CHECK(holds(far, data, SIZE));
    OK(cuCtxSetCurrent(here));
    CHECK(free_bytes() == left);
    OK(cuMemFree(near));
    OK(cuDevicePrimaryCtxRelease(1));
}

/* A pointer knows what it points into. */
static void pointers(void)
{
    CUdeviceptr pointer = device_bytes(data, SIZE), start, base;
    CUmemorytype type;
    CUcontext own, current;
    size_t size;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *values[] = {&type, &own, &start};
    OK(cuPointerGetAttributes(COUNT(names), names, values, pointer + 100));
    OK(cuCtxGetCurrent(&current));
    CHECK(type == CU_MEMORYTYPE_DEVICE && own == current && start == pointer);
    OK(cuMemGetAddressRange(&base, &size, pointer + SIZE - 1));
    CHECK(base == pointer && size == SIZE);
    EXPECT(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, (CUdeviceptr)data));
    OK(cuPointerGetAttributes(COUNT(names), names, values, (CUdeviceptr)data));
    CHECK(!type && !own && !start);
    OK(cuMemFree(pointer));
}

static const struct area AREAS[] = {
    {"mappings", mappings},
    {"shared mappings", shared_mappings},
    {"managed", managed},
    {"pinned", pinned},
    {"pools", pools},
    {"pools make room", pools_make_room},
    {"pools grow on a full card", pools_grow_on_a_full_card},
    {"contexts", contexts},
    {"many contexts", many_contexts},
    {"peers", peers},
    {"pointers", pointers},
};

int main(int count, char **names)
{
    return run_areas(AREAS, COUNT(AREAS), count, names);
}
