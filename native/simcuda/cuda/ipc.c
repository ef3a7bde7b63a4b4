/*
 * Memory of one process in another. When it is exported for the first time, its bytes move into a
 * file in memory, at the same address; the handle says which process has that file open.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda/memory_files.h"
#include "cuda/blocks.h"

#define IPC_MAGIC 0x1bc51bc5u

struct ipc_handle {
    unsigned magic;
    int pid, fd;
    size_t bytes;
};

_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "fits into a handle");

static bool write_all(int fd, const char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t written = pwrite(fd, data + done, bytes - done, (off_t)done);
        if (written <= 0)
            return false;
        done += (size_t)written;
    }
    return true;
}

static CUresult share(struct block *block)
{
    size_t bytes = round_up(block->bytes, 4096);
    int fd = memory_file("simcuda-ipc");
    REQUIRE(fd >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    bool moved = !ftruncate(fd, (off_t)bytes) &&
                 write_all(fd, (const char *)block->start, block->bytes) &&
                 mmap((void *)block->start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      fd, 0) != MAP_FAILED;
    if (!moved) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->shared_fd = fd;
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    ENTER_CONTEXT(context);
    (void)context;
    struct block *block = block_at(dptr);
    REQUIRE_VALUE(pHandle && block && block->origin == FROM_DEVICE);
    CUresult result = block->shared_fd < 0 ? share(block) : CUDA_SUCCESS;
    REQUIRE(!result, result);
    struct ipc_handle handle = {
        .magic = IPC_MAGIC,
        .pid = getpid(),
        .fd = block->shared_fd,
        .bytes = block->bytes,
    };
    memset(pHandle, 0, sizeof *pHandle);
    memcpy(pHandle, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

/* What is opened costs this process nothing: the one who allocated it is charged. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
    ENTER_CONTEXT(context);
    struct ipc_handle seen;
    struct stat status;
    char path[64];
    memcpy(&seen, &handle, sizeof seen);
    REQUIRE_VALUE(pdptr && seen.magic == IPC_MAGIC && Flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    REQUIRE(seen.pid != getpid(), CUDA_ERROR_INVALID_CONTEXT);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", seen.pid, seen.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0, CUDA_ERROR_INVALID_HANDLE);
    void *start = fstat(fd, &status) || (size_t)status.st_size < seen.bytes
                      ? MAP_FAILED
                      : mmap(0, seen.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    REQUIRE(start != MAP_FAILED, CUDA_ERROR_INVALID_HANDLE);
    struct block *block = block_add(context, FROM_IPC, start, seen.bytes);
    REQUIRE(block, CUDA_ERROR_OUT_OF_MEMORY);
    block->device = context->device;
    *pdptr = block->start;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
    ENTER_CONTEXT(context);
    (void)context;
    struct block *block = block_at(dptr);
    REQUIRE_VALUE(block && block->origin == FROM_IPC);
    block_end(block);
    return CUDA_SUCCESS;
}
