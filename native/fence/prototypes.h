/* Signatures of what hooks.h names; the wrappers are defined with them. */
#pragma once
#include "cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define CU EXPORT CUresult
#define NV EXPORT nvmlReturn_t

CU cuGetProcAddress(const char *, void **, int, unsigned long long);
CU cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);
CU cuGetErrorString(CUresult, const char **);

CU cuCtxCreate(CUcontext *, unsigned, CUdevice);
CU cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CU cuCtxCreate_v3(CUcontext *, void *, int, unsigned, CUdevice);
CU cuCtxCreate_v4(CUcontext *, void *, unsigned, CUdevice);
CU cuCtxDestroy(CUcontext);
CU cuCtxDestroy_v2(CUcontext);
CU cuCtxDetach(CUcontext);
CU cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CU cuDevicePrimaryCtxRelease(CUdevice);
CU cuDevicePrimaryCtxRelease_v2(CUdevice);
CU cuDevicePrimaryCtxReset(CUdevice);
CU cuDevicePrimaryCtxReset_v2(CUdevice);
CUresult cuCtxGetCurrent(CUcontext *);
CUresult cuCtxGetDevice(CUdevice *);
CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);
CUresult cuCtxGetApiVersion(CUcontext, unsigned *);
CUresult cuDeviceGetUuid(CUuuid *, CUdevice);
CUresult cuDeviceGetUuid_v2(CUuuid *, CUdevice);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *, int *);

CU cuMemAlloc(CUdeviceptr_v1 *, unsigned);
CU cuMemAlloc_v2(CUdeviceptr *, size_t);
CU cuMemAllocPitch(CUdeviceptr_v1 *, unsigned *, unsigned, unsigned, unsigned);
CU cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CU cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CU cuMemFree(CUdeviceptr_v1);
CU cuMemFree_v2(CUdeviceptr);
CU cuMemFreeAsync(CUdeviceptr, CUstream);
CU cuMemFreeAsync_ptsz(CUdeviceptr, CUstream);

CU cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CU cuMemAllocAsync_ptsz(CUdeviceptr *, size_t, CUstream);
CU cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CU cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CU cuMemPoolCreate(CUmemoryPool *, const CUmemPoolProps *);
CU cuMemPoolTrimTo(CUmemoryPool, size_t);
CU cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void *);
CUresult cuDeviceGetMemPool(CUmemoryPool *, CUdevice);

CU cuStreamSynchronize(CUstream);
CU cuStreamSynchronize_ptsz(CUstream);
CU cuEventSynchronize(CUevent);
CU cuCtxSynchronize(void);
CU cuCtxSynchronize_v2(CUcontext);
CUresult cuStreamGetCtx(CUstream, CUcontext *);

CU cuMemCreate(CUmemHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
CU cuMemRelease(CUmemHandle);
CU cuMemMap(CUdeviceptr, size_t, size_t, CUmemHandle, unsigned long long);
CU cuMemUnmap(CUdeviceptr, size_t);
CU cuMemRetainAllocationHandle(CUmemHandle *, void *);
CU cuMemImportFromShareableHandle(CUmemHandle *, void *, int);
CU cuMemExportToShareableHandle(void *, CUmemHandle, int, unsigned long long);
CU cuMemMapArrayAsync(CUarrayMapInfo *, unsigned, CUstream);
CU cuMemMapArrayAsync_ptsz(CUarrayMapInfo *, unsigned, CUstream);
CU cuMulticastBindMem(CUmemHandle, size_t, CUmemHandle, size_t, size_t, unsigned long long);
CU cuMulticastBindMem_v2(CUmemHandle, CUdevice, size_t, CUmemHandle, size_t, size_t,
                         unsigned long long);
CU cuMulticastBindAddr(CUmemHandle, size_t, CUdeviceptr, size_t, unsigned long long);
CU cuMulticastBindAddr_v2(CUmemHandle, CUdevice, size_t, CUdeviceptr, size_t, unsigned long long);
CU cuLogicalEndpointBindMem(unsigned, CUdevice, uint64_t, CUmemHandle, uint64_t, uint64_t,
                            unsigned long long);
CU cuLogicalEndpointBindAddr(unsigned, CUdevice, uint64_t, void *, uint64_t, unsigned long long);
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *, CUmemHandle);

CU cuArrayCreate(CUarray *, const CUDA_ARRAY_DESCRIPTOR_v1 *);
CU cuArrayCreate_v2(CUarray *, const CUDA_ARRAY_DESCRIPTOR *);
CU cuArray3DCreate(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR_v1 *);
CU cuArray3DCreate_v2(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *);
CU cuArrayDestroy(CUarray);
CU cuMipmappedArrayCreate(CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned);
CU cuMipmappedArrayDestroy(CUmipmappedArray);
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *, CUarray, CUdevice);
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *, CUmipmappedArray,
                                               CUdevice);

CU cuModuleLoad(CUmodule *, const char *);
CU cuModuleLoadData(CUmodule *, const void *);
CU cuModuleLoadDataEx(CUmodule *, const void *, unsigned, int *, void **);
CU cuModuleLoadFatBinary(CUmodule *, const void *);
CU cuModuleUnload(CUmodule);
CU cuLibraryLoadData(CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned);
CU cuLibraryLoadFromFile(CUlibrary *, const char *, int *, void **, unsigned, int *, void **,
                         unsigned);
CU cuLibraryUnload(CUlibrary);
CU cuLibraryGetModule(CUmodule *, CUlibrary);
CU cuLibraryGetGlobal(CUdeviceptr *, size_t *, CUlibrary, const char *);
CU cuLibraryGetManaged(CUdeviceptr *, size_t *, CUlibrary, const char *);
CU cuKernelGetFunction(CUfunction *, CUkernel);
CU cuLibraryGetKernel(CUkernel *, CUlibrary, const char *);
CU cuLibraryEnumerateKernels(CUkernel *, unsigned, CUlibrary);
CUresult cuLibraryGetKernelCount(unsigned *, CUlibrary);
CUresult cuKernelGetLibrary(CUlibrary *, CUkernel);

CU cuInit(unsigned);
CU cuGraphInstantiate(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CU cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CU cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CU cuGraphInstantiateWithParams(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
CU cuGraphInstantiateWithParams_ptsz(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
CU cuGraphExecDestroy(CUgraphExec);
CU cuGraphExecUpdate(CUgraphExec, CUgraph, CUgraphNode *, int *);
CU cuGraphExecUpdate_v2(CUgraphExec, CUgraph, void *);
CU cuGraphExecChildGraphNodeSetParams(CUgraphExec, CUgraphNode, CUgraph);
CU cuGraphExecNodeSetParams(CUgraphExec, CUgraphNode, CUgraphNodeParams *);
CU cuGraphUpload(CUgraphExec, CUstream);
CU cuGraphUpload_ptsz(CUgraphExec, CUstream);
CU cuGraphLaunch(CUgraphExec, CUstream);
CU cuGraphLaunch_ptsz(CUgraphExec, CUstream);
CU cuDeviceGraphMemTrim(CUdevice);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetType(CUgraphNode, int *);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS *);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode, CUdeviceptr *);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph *);
CUresult cuDeviceGetGraphMemAttribute(CUdevice, int, void *);

#define LAUNCH_ARGUMENTS                                                                           \
    CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,          \
        unsigned bz, unsigned shared, CUstream stream, void **arguments
CU cuLaunchKernel(LAUNCH_ARGUMENTS, void **extra);
CU cuLaunchKernel_ptsz(LAUNCH_ARGUMENTS, void **extra);
CU cuLaunchKernelEx(const CUlaunchConfig *, CUfunction, void **, void **);
CU cuLaunchKernelEx_ptsz(const CUlaunchConfig *, CUfunction, void **, void **);
CU cuLaunchCooperativeKernel(LAUNCH_ARGUMENTS);
CU cuLaunchCooperativeKernel_ptsz(LAUNCH_ARGUMENTS);
CU cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *, unsigned, unsigned);
CU cuLaunch(CUfunction);
CU cuLaunchGrid(CUfunction, int, int);
CU cuLaunchGridAsync(CUfunction, int, int, CUstream);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuStreamIsCapturing_ptsz(CUstream, int *);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventRecord_ptsz(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventElapsedTime(float *, CUevent, CUevent);

CU cuMemGetInfo(unsigned *, unsigned *);
CU cuMemGetInfo_v2(size_t *, size_t *);
CU cuDeviceTotalMem(unsigned *, CUdevice);
CU cuDeviceTotalMem_v2(size_t *, CUdevice);

NV nvmlDeviceGetCount(unsigned *);
NV nvmlDeviceGetCount_v2(unsigned *);
NV nvmlDeviceGetHandleByIndex(unsigned, nvmlDevice_t *);
NV nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t *);
NV nvmlDeviceGetHandleByUUID(const char *, nvmlDevice_t *);
NV nvmlDeviceGetHandleByUUIDV(const void *, nvmlDevice_t *);
NV nvmlDeviceGetHandleBySerial(const char *, nvmlDevice_t *);
NV nvmlDeviceGetHandleByPciBusId(const char *, nvmlDevice_t *);
NV nvmlDeviceGetHandleByPciBusId_v2(const char *, nvmlDevice_t *);
NV nvmlDeviceGetIndex(nvmlDevice_t, unsigned *);
NV nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t *);
NV nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t *);
NV nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *);
NV nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
NV nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
NV nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *);
NV nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
NV nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
NV nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t, unsigned *, nvmlProcessInfo_v1_t *);
NV nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
NV nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t, unsigned *, nvmlProcessInfo_t *);
NV nvmlDeviceGetProcessUtilization(nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned *,
                                   unsigned long long);
NV nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t, nvmlProcessesUtilizationInfo_v1_t *);
NV nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t, void *);
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned);
