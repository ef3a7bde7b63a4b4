/* Every driver function that the fence wraps, and every one that it calls.
 *
 * A wrapped function: X(exported symbol, name in cuGetProcAddress, first CUDA version of this
 * form, 1 if it is the per-thread-stream form). A function of the driver that is not here is
 * never seen by the fence: what NVIDIA adds passes untouched. */
#pragma once

/* The newest version whose forms are all known here. */
#define HOOKS_KNOWN_VERSION 13040

#define CUDA_HOOKS(X)                                                                              \
    X(cuGetProcAddress, cuGetProcAddress, 11030, 0)                                                \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0)                                             \
    X(cuGetErrorString, cuGetErrorString, 6000, 0)                                                 \
    /* contexts */                                                                                 \
    X(cuCtxCreate, cuCtxCreate, 2000, 0)                                                           \
    X(cuCtxCreate_v2, cuCtxCreate, 3020, 0)                                                        \
    X(cuCtxCreate_v3, cuCtxCreate, 11040, 0)                                                       \
    X(cuCtxCreate_v4, cuCtxCreate, 12050, 0)                                                       \
    X(cuCtxDestroy, cuCtxDestroy, 2000, 0)                                                         \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0)                                                      \
    X(cuCtxDetach, cuCtxDetach, 2000, 0)                                                           \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0)                                 \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000, 0)                               \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0)                           \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000, 0)                                   \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0)                               \
    /* linear memory */                                                                            \
    X(cuMemAlloc, cuMemAlloc, 2000, 0)                                                             \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, 0)                                                          \
    X(cuMemAllocPitch, cuMemAllocPitch, 2000, 0)                                                   \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0)                                                \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0)                                               \
    X(cuMemFree, cuMemFree, 2000, 0)                                                               \
    X(cuMemFree_v2, cuMemFree, 3020, 0)                                                            \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0)                                                    \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, 1)                                               \
    /* pools */                                                                                    \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0)                                                  \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, 1)                                             \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0)                                  \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, 1)                             \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, 0)                                                  \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0)                                                  \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0)                                                \
    /* pools shrink when these return */                                                           \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, 0)                                           \
    X(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, 1)                                      \
    X(cuEventSynchronize, cuEventSynchronize, 2000, 0)                                             \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0)                                                 \
    X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0)                                             \
    /* physical memory and its mappings */                                                         \
    X(cuMemCreate, cuMemCreate, 10020, 0)                                                          \
    X(cuMemRelease, cuMemRelease, 10020, 0)                                                        \
    X(cuMemMap, cuMemMap, 10020, 0)                                                                \
    X(cuMemUnmap, cuMemUnmap, 10020, 0)                                                            \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0)                          \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0)                    \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, 0)                        \
    X(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, 0)                                            \
    X(cuMemMapArrayAsync_ptsz, cuMemMapArrayAsync, 11010, 1)                                       \
    X(cuMulticastBindMem, cuMulticastBindMem, 12010, 0)                                            \
    X(cuMulticastBindMem_v2, cuMulticastBindMem, 13010, 0)                                         \
    X(cuMulticastBindAddr, cuMulticastBindAddr, 12010, 0)                                          \
    X(cuMulticastBindAddr_v2, cuMulticastBindAddr, 13010, 0)                                       \
    X(cuLogicalEndpointBindMem, cuLogicalEndpointBindMem, 13030, 0)                                \
    X(cuLogicalEndpointBindAddr, cuLogicalEndpointBindAddr, 13030, 0)                              \
    /* arrays */                                                                                   \
    X(cuArrayCreate, cuArrayCreate, 2000, 0)                                                       \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, 0)                                                    \
    X(cuArray3DCreate, cuArray3DCreate, 2000, 0)                                                   \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0)                                                \
    X(cuArrayDestroy, cuArrayDestroy, 2000, 0)                                                     \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0)                                     \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0)                                   \
    /* code */                                                                                     \
    X(cuModuleLoad, cuModuleLoad, 2000, 0)                                                         \
    X(cuModuleLoadData, cuModuleLoadData, 2000, 0)                                                 \
    X(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0)                                             \
    X(cuModuleLoadFatBinary, cuModuleLoadFatBinary, 2000, 0)                                       \
    X(cuModuleUnload, cuModuleUnload, 2000, 0)                                                     \
    X(cuLibraryLoadData, cuLibraryLoadData, 12000, 0)                                              \
    X(cuLibraryLoadFromFile, cuLibraryLoadFromFile, 12000, 0)                                      \
    X(cuLibraryUnload, cuLibraryUnload, 12000, 0)                                                  \
    X(cuLibraryGetModule, cuLibraryGetModule, 12000, 0)                                            \
    X(cuLibraryGetGlobal, cuLibraryGetGlobal, 12000, 0)                                            \
    X(cuLibraryGetManaged, cuLibraryGetManaged, 12000, 0)                                          \
    X(cuKernelGetFunction, cuKernelGetFunction, 12000, 0)                                          \
    X(cuLibraryGetKernel, cuLibraryGetKernel, 12000, 0)                                            \
    X(cuLibraryEnumerateKernels, cuLibraryEnumerateKernels, 12040, 0)                              \
    /* graphs */                                                                                   \
    X(cuGraphInstantiate, cuGraphInstantiate, 10000, 0)                                            \
    X(cuGraphInstantiate_v2, cuGraphInstantiate, 11000, 0)                                         \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, 0)                          \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, 0)                        \
    X(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, 12000, 1)                   \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, 0)                                            \
    X(cuGraphExecUpdate, cuGraphExecUpdate, 10020, 0)                                              \
    X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, 0)                                           \
    X(cuGraphExecChildGraphNodeSetParams, cuGraphExecChildGraphNodeSetParams, 11010, 0)            \
    X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020, 0)                                \
    X(cuGraphUpload, cuGraphUpload, 11010, 0)                                                      \
    X(cuGraphUpload_ptsz, cuGraphUpload, 11010, 1)                                                 \
    X(cuGraphLaunch, cuGraphLaunch, 10000, 0)                                                      \
    X(cuGraphLaunch_ptsz, cuGraphLaunch, 10000, 1)                                                 \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, 0)                                        \
    /* launches */                                                                                 \
    X(cuLaunchKernel, cuLaunchKernel, 4000, 0)                                                     \
    X(cuLaunchKernel_ptsz, cuLaunchKernel, 7000, 1)                                                \
    X(cuLaunchKernelEx, cuLaunchKernelEx, 11060, 0)                                                \
    X(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, 11060, 1)                                           \
    X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000, 0)                               \
    X(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, 9000, 1)                          \
    X(cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernelMultiDevice, 9000, 0)         \
    X(cuLaunch, cuLaunch, 2000, 0)                                                                 \
    X(cuLaunchGrid, cuLaunchGrid, 2000, 0)                                                         \
    X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, 0)                                               \
    /* which cards there are, and what they look like */                                           \
    X(cuInit, cuInit, 2000, 0)                                                                     \
    X(cuMemGetInfo, cuMemGetInfo, 2000, 0)                                                         \
    X(cuMemGetInfo_v2, cuMemGetInfo, 3020, 0)                                                      \
    X(cuDeviceTotalMem, cuDeviceTotalMem, 2000, 0)                                                 \
    X(cuDeviceTotalMem_v2, cuDeviceTotalMem, 3020, 0)

#define NVML_HOOKS(X)                                                                              \
    X(nvmlDeviceGetCount)                                                                          \
    X(nvmlDeviceGetCount_v2)                                                                       \
    X(nvmlDeviceGetHandleByIndex)                                                                  \
    X(nvmlDeviceGetHandleByIndex_v2)                                                               \
    X(nvmlDeviceGetHandleByUUID)                                                                   \
    X(nvmlDeviceGetHandleByUUIDV)                                                                  \
    X(nvmlDeviceGetHandleBySerial)                                                                 \
    X(nvmlDeviceGetHandleByPciBusId)                                                               \
    X(nvmlDeviceGetHandleByPciBusId_v2)                                                            \
    X(nvmlDeviceGetIndex)                                                                          \
    X(nvmlDeviceGetMemoryInfo)                                                                     \
    X(nvmlDeviceGetMemoryInfo_v2)                                                                  \
    X(nvmlDeviceGetComputeRunningProcesses)                                                        \
    X(nvmlDeviceGetComputeRunningProcesses_v2)                                                     \
    X(nvmlDeviceGetComputeRunningProcesses_v3)                                                     \
    X(nvmlDeviceGetGraphicsRunningProcesses)                                                       \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2)                                                    \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3)                                                    \
    X(nvmlDeviceGetMPSComputeRunningProcesses)                                                     \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2)                                                  \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3)                                                  \
    X(nvmlDeviceGetProcessUtilization)                                                             \
    X(nvmlDeviceGetProcessesUtilizationInfo)                                                       \
    X(nvmlDeviceGetRunningProcessDetailList)

/* Called, not wrapped. */
#define CUDA_CALLS(X)                                                                              \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxPushCurrent_v2)                                                                         \
    X(cuCtxPopCurrent_v2)                                                                          \
    X(cuCtxGetApiVersion)                                                                          \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDeviceGetUuid_v2)                                                                          \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuStreamGetCtx)                                                                              \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuStreamIsCapturing)                                                                         \
    X(cuStreamIsCapturing_ptsz)                                                                    \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy_v2)                                                                           \
    X(cuEventRecord)                                                                               \
    X(cuEventRecord_ptsz)                                                                          \
    X(cuEventQuery)                                                                                \
    X(cuEventElapsedTime)                                                                          \
    X(cuMemPoolGetAttribute)                                                                       \
    X(cuDeviceGetMemPool)                                                                          \
    X(cuMemGetAllocationPropertiesFromHandle)                                                      \
    X(cuKernelGetLibrary)                                                                          \
    X(cuLibraryGetKernelCount)                                                                     \
    X(cuArrayGetMemoryRequirements)                                                                \
    X(cuMipmappedArrayGetMemoryRequirements)                                                       \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphNodeGetType)                                                                          \
    X(cuGraphMemAllocNodeGetParams)                                                                \
    X(cuGraphMemFreeNodeGetParams)                                                                 \
    X(cuGraphChildGraphNodeGetGraph)                                                               \
    X(cuDeviceGetGraphMemAttribute)
#define NVML_CALLS(X) X(nvmlDeviceGetUUID)
