/* Memory without an address: its bytes are a file in memory, which other processes can map too. */
#include "cuda/memory_files.h"
#include "cuda/physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void physical_release(struct physical *physical)
{
    if (physical->handles || physical->mappings)
        return;
    if (physical->device)
        device_release(physical->device, physical->bytes);
    close(physical->fd);
    object_delete(physical);
}

static bool is_host(CUmemLocationType type)
{
    return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
           type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/* The device where it is counted, NULL for the host. */
static CUresult check_props(const CUmemAllocationProp *props, struct device **device)
{
    REQUIRE_VALUE(props && props->type == CU_MEM_ALLOCATION_TYPE_PINNED);
    bool on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    REQUIRE_VALUE(on_device || is_host(props->location.type));
    *device = on_device ? device_find(props->location.id) : 0;
    return *device || !on_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Takes the file over, also if it fails. */
static CUresult make(CUmemGenericAllocationHandle *out, size_t bytes, struct device *device,
                     const CUmemAllocationProp *props, int fd)
{
    struct physical *physical = fd < 0 ? 0 : object_new(sizeof *physical, KIND_PHYSICAL, 0);
    if (!physical) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->device = device;
    physical->props = *props;
    physical->bytes = bytes;
    physical->fd = fd;
    physical->handles = 1;
    *out = (CUmemGenericAllocationHandle)physical;
    return CUDA_SUCCESS;
}

static int new_file(size_t bytes)
{
    int fd = memory_file("simcuda");
    if (fd >= 0 && !ftruncate(fd, (off_t)bytes))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    ENTER();
    struct device *device;
    REQUIRE_VALUE(handle && size && size % GRANULARITY == 0 && !flags);
    CUresult result = check_props(prop, &device);
    if (!result && device)
        result = device_health(device);
    if (!result && device)
        result = device_reserve(device, size);
    if (result)
        return result;
    result = make(handle, size, device, prop, new_file(size));
    if (result && device)
        device_release(device, size);
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER();
    struct physical *physical = object_find((void *)handle, KIND_PHYSICAL);
    REQUIRE_VALUE(physical && physical->handles);
    physical->handles--;
    physical_release(physical);
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    ENTER();
    struct block *block = block_around((CUdeviceptr)addr);
    REQUIRE_VALUE(handle && block && block->origin == FROM_PHYSICAL);
    block->physical->handles++;
    *handle = (CUmemGenericAllocationHandle)block->physical;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    ENTER();
    struct device *device;
    (void)option;
    CUresult result = check_props(prop, &device);
    REQUIRE(!result, result);
    REQUIRE_VALUE(granularity);
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    ENTER();
    struct physical *physical = object_find((void *)handle, KIND_PHYSICAL);
    REQUIRE_VALUE(prop && physical);
    *prop = physical->props;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags)
{
    ENTER();
    struct physical *physical = object_find((void *)handle, KIND_PHYSICAL);
    REQUIRE_VALUE(shareableHandle && physical && !flags);
    REQUIRE(handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE_VALUE(physical->props.requestedHandleTypes & handleType);
    int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
    REQUIRE(fd >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)shareableHandle = fd;
    return CUDA_SUCCESS;
}

/* What is imported is counted where it was created, for as long as its creator lives. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
                                        CUmemAllocationHandleType shHandleType)
{
    ENTER();
    struct stat status;
    CUmemAllocationProp props = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_of_thread()->ordinal},
    };
    REQUIRE(shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    int fd = fcntl((int)(intptr_t)osHandle, F_DUPFD_CLOEXEC, 0);
    REQUIRE_VALUE(handle && fd >= 0);
    if (fstat(fd, &status) || !status.st_size || status.st_size % GRANULARITY) {
        close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return make(handle, (size_t)status.st_size, 0, &props, fd);
}
