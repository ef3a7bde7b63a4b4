/* Memory that something else keeps than its handles and mappings.
 *
 * A descriptor that was exported does, until it is closed. Nobody tells us of that, so they are
 * looked at when memory is given back, and before anybody is refused; a copy that was made of one
 * cannot be seen. What is bound to an array or to a group of cards, or exported in another form, is
 * counted until the process ends. */
#define _GNU_SOURCE
#include "fence.h"
#include <pthread.h>
#include <sys/stat.h>

enum { EXPORTS = 1024 }; /* at once; memory of further ones is counted until the process ends */

static struct export {
    uint64_t number; /* of the memory */
    int file;
    dev_t device;
    ino_t inode;
} exports[EXPORTS];
static int known;
static pthread_mutex_t exports_lock = PTHREAD_MUTEX_INITIALIZER;

void exports_forked(void)
{
    pthread_mutex_init(&exports_lock, NULL);
    known = 0;
}

static void note(uint64_t number, int file)
{
    struct stat about;
    pthread_mutex_lock(&exports_lock);
    if (number && known < EXPORTS && !fstat(file, &about))
        exports[known++] = (struct export){number, file, about.st_dev, about.st_ino};
    pthread_mutex_unlock(&exports_lock);
}

static bool open_still(const struct export *export)
{
    struct stat about;
    return !fstat(export->file, &about) && about.st_dev == export->device &&
           about.st_ino == export->inode;
}

static void look_again(void)
{
    struct calm calm = calm_begin();
    pthread_mutex_lock(&exports_lock);
    for (int i = known - 1; i >= 0; i--)
        if (!open_still(&exports[i])) {
            physical_drop(exports[i].number, 1);
            exports[i] = exports[--known];
        }
    pthread_mutex_unlock(&exports_lock);
    calm_end(calm);
}

void exports_refresh(void)
{
    if (unlikely(__atomic_load_n(&known, __ATOMIC_RELAXED)))
        look_again();
}

CUresult cuMemExportToShareableHandle(void *shared, CUmemHandle handle, int type,
                                      unsigned long long flags)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    exports_refresh();
    uint64_t number = physical_hold(handle); /* before: its handle may be released meanwhile */
    CUresult result = REAL(cuMemExportToShareableHandle)(shared, handle, type, flags);
    if (result)
        physical_drop(number, 1);
    else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        note(number, *(int *)shared);
    return result;
}

#define MAP_ARRAY(symbol)                                                                          \
    CUresult symbol(CUarrayMapInfo *maps, unsigned count, CUstream stream)                         \
    {                                                                                              \
        CUresult result =                                                                          \
            driver_load(NULL) ? REAL(symbol)(maps, count, stream) : CUDA_ERROR_NO_DEVICE;          \
        for (unsigned i = 0; !result && i < count; i++)                                            \
            if (maps[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)                             \
                physical_hold(maps[i].memHandle);                                                  \
        return result;                                                                             \
    }
MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)

/* Held before, since the handle may be released meanwhile. */
#define BIND(memory, call)                                                                         \
    if (!driver_load(NULL))                                                                        \
        return CUDA_ERROR_NO_DEVICE;                                                               \
    uint64_t number = physical_hold(memory);                                                       \
    CUresult result = call;                                                                        \
    if (result)                                                                                    \
        physical_drop(number, 1);                                                                  \
    return result

CUresult cuMulticastBindMem(CUmemHandle group, size_t group_offset, CUmemHandle memory,
                            size_t offset, size_t bytes, unsigned long long flags)
{
    BIND(memory, REAL(cuMulticastBindMem)(group, group_offset, memory, offset, bytes, flags));
}

CUresult cuMulticastBindMem_v2(CUmemHandle group, CUdevice device, size_t group_offset,
                               CUmemHandle memory, size_t offset, size_t bytes,
                               unsigned long long flags)
{
    BIND(memory,
         REAL(cuMulticastBindMem_v2)(group, device, group_offset, memory, offset, bytes, flags));
}

CUresult cuLogicalEndpointBindMem(unsigned endpoint, CUdevice device, uint64_t at,
                                  CUmemHandle memory, uint64_t offset, uint64_t bytes,
                                  unsigned long long flags)
{
    BIND(memory,
         REAL(cuLogicalEndpointBindMem)(endpoint, device, at, memory, offset, bytes, flags));
}

/* By address: one call may bind what lies in several mappings side by side. Of more than these,
 * what is left stays counted if the driver refuses. */
enum { BOUND = 64 };

#define BIND_ADDRESS(address, bytes, call)                                                         \
    if (!driver_load(NULL))                                                                        \
        return CUDA_ERROR_NO_DEVICE;                                                               \
    uint64_t numbers[BOUND];                                                                       \
    int held = physical_hold_mapped(address, bytes, numbers, BOUND);                               \
    CUresult result = call;                                                                        \
    while (result && held--)                                                                       \
        physical_drop(numbers[held], 1);                                                           \
    return result

CUresult cuMulticastBindAddr(CUmemHandle group, size_t group_offset, CUdeviceptr address,
                             size_t bytes, unsigned long long flags)
{
    BIND_ADDRESS(address, bytes,
                 REAL(cuMulticastBindAddr)(group, group_offset, address, bytes, flags));
}

CUresult cuMulticastBindAddr_v2(CUmemHandle group, CUdevice device, size_t group_offset,
                                CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    BIND_ADDRESS(address, bytes,
                 REAL(cuMulticastBindAddr_v2)(group, device, group_offset, address, bytes, flags));
}

CUresult cuLogicalEndpointBindAddr(unsigned endpoint, CUdevice device, uint64_t at, void *address,
                                   uint64_t bytes, unsigned long long flags)
{
    BIND_ADDRESS((CUdeviceptr)address, bytes,
                 REAL(cuLogicalEndpointBindAddr)(endpoint, device, at, address, bytes, flags));
}
