/* The rest of the runtime API: device, errors, streams and events. */
#include <new>
#include <string.h>
#include <time.h>

#include "emulator/runtime/launch.h"

using namespace gr;

static __thread cudaError_t last_error;

cudaError_t gr::set_error(cudaError_t error)
{
    if (error)
        last_error = error;
    return error;
}

/* name, message */
#define GR_ERRORS(X)                                                                               \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInitializationError, "initialization error")                                        \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInvalidDevicePointer, "invalid device pointer")                                     \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                        \
    X(cudaErrorInsufficientDriver, "the driver is older than the runtime")                         \
    X(cudaErrorDevicesUnavailable, "all devices are busy or unavailable")                          \
    X(cudaErrorMissingConfiguration, "the kernel was not configured")                              \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")                                   \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorInvalidKernelImage, "the kernel image is invalid")                                  \
    X(cudaErrorNoKernelImageForDevice, "no kernel image is available for the device")              \
    X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                            \
    X(cudaErrorUnsupportedPtxVersion, "the PTX was compiled with an unsupported toolchain")        \
    X(cudaErrorOperatingSystem, "a call to the operating system failed")                           \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorNotReady, "not ready")                                                              \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                    \
    X(cudaErrorLaunchTimeout, "the launch timed out and was ended")                                \
    X(cudaErrorAssert, "an assertion in a kernel failed")                                          \
    X(cudaErrorHostMemoryAlreadyRegistered, "the memory is registered already")                    \
    X(cudaErrorHostMemoryNotRegistered, "the memory is not registered")                            \
    X(cudaErrorIllegalInstruction, "an illegal instruction was encountered")                       \
    X(cudaErrorMisalignedAddress, "misaligned address")                                            \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                        \
    X(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch")                 \
    X(cudaErrorNotPermitted, "operation not permitted")                                            \
    X(cudaErrorNotSupported, "operation not supported")                                            \
    X(cudaErrorSystemNotReady, "the system is not yet initialized")                                \
    X(cudaErrorSystemDriverMismatch, "the driver and its libraries do not match")                  \
    X(cudaErrorInvalidClusterSize, "cluster misconfiguration")                                     \
    X(cudaErrorUnknown, "unknown error")

struct CUstream_st {
    unsigned flags;
};

struct CUevent_st {
    unsigned flags;
    bool recorded;
    struct timespec time;
};

/* Elapsed milliseconds. */
static float between(const struct timespec &start, const struct timespec &end)
{
    return (float)((double)(end.tv_sec - start.tv_sec) * 1e3 +
                   (double)(end.tv_nsec - start.tv_nsec) * 1e-6);
}

static cudaError_t check_device(int device)
{
    return set_error(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

void gr_copy_bytes(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

extern "C" {

int gr_emulator_traced(void)
{
#ifdef GR_EMULATOR_TRACED
    return 1;
#else
    return 0;
#endif
}

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!count)
        return set_error(cudaErrorInvalidValue);
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return check_device(device);
}

cudaError_t cudaGetDevice(int *device)
{
    if (!device)
        return set_error(cudaErrorInvalidValue);
    *device = 0;
    return cudaSuccess;
}

/* Bandwidths and clock rates are 0: emulated times have no meaningful peak to compare with. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    if (!prop)
        return set_error(cudaErrorInvalidValue);
    if (check_device(device))
        return cudaErrorInvalidDevice;
    memset(prop, 0, sizeof *prop);
    strcpy(prop->name, "gpureduce emulator");
    size_t free_bytes;
    cudaMemGetInfo(&free_bytes, &prop->totalGlobalMem);
    prop->sharedMemPerBlock = device_shared_per_block;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = device_threads_per_block;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 0x7fffffff;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = 9;
    prop->multiProcessorCount = device_sms;
    prop->canMapHostMemory = 1;
    prop->concurrentKernels = 1;
    prop->unifiedAddressing = 1;
    prop->l2CacheSize = 1 << 20;
    prop->maxThreadsPerMultiProcessor = device_threads_per_sm;
    prop->sharedMemPerMultiprocessor = device_shared_per_sm;
    prop->cooperativeLaunch = 1;
    prop->sharedMemPerBlockOptin = device_shared_optin;
    prop->maxBlocksPerMultiProcessor = device_blocks_per_sm;
    prop->reservedSharedMemPerBlock = device_shared_reserved;
    prop->clusterLaunch = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    if (!value)
        return set_error(cudaErrorInvalidValue);
    if (check_device(device))
        return cudaErrorInvalidDevice;
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock: *value = device_threads_per_block; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)device_shared_per_block; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)device_shared_optin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)device_shared_per_sm; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)device_shared_reserved; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrMultiProcessorCount: *value = device_sms; break;
    case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = device_threads_per_sm; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = device_blocks_per_sm; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrClusterLaunch: *value = 1; break;
    case cudaDevAttrClockRate:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrIntegrated:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth:
    case cudaDevAttrAsyncEngineCount:
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    default: return set_error(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return set_error(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    return cudaRuntimeGetVersion(version);
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define X(name, text)                                                                              \
    case name: return #name;
        GR_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define X(name, text)                                                                              \
    case name: return text;
        GR_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    if (!stream || flags > cudaStreamNonBlocking)
        return set_error(cudaErrorInvalidValue);
    *stream = new (std::nothrow) CUstream_st{flags};
    return set_error(*stream ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
        return set_error(cudaErrorInvalidResourceHandle);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned int)
{
    return set_error(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    if (!event)
        return set_error(cudaErrorInvalidValue);
    *event = new (std::nothrow) CUevent_st{flags, false, {0, 0}};
    return set_error(*event ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    if (!event)
        return set_error(cudaErrorInvalidResourceHandle);
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    event->recorded = true;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return set_error(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return set_error(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (!ms)
        return set_error(cudaErrorInvalidValue);
    if (!start || !end || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & cudaEventDisableTiming))
        return set_error(cudaErrorInvalidResourceHandle);
    *ms = between(start->time, end->time);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!event)
        return set_error(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}
}
