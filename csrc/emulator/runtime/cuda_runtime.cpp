/* The rest of the runtime API: device, errors, streams and events. */
#include <new>
#include <string.h>
#include <time.h>

#include "emulator/runtime/launch.h"

using namespace gr;

static __thread cudaError_t last_error;
static __thread int thread_device;
static int device_count = 1; /* set and read atomically */

int gr::current_device()
{
    return thread_device;
}

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
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                        \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")                                   \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorNotReady, "not ready")                                                              \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                        \
    X(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch")                 \
    X(cudaErrorNotSupported, "operation not supported")                                            \
    X(cudaErrorStreamCaptureImplicit, "dependency on a captured stream")                           \
    X(cudaErrorInvalidClusterSize, "cluster misconfiguration")                                     \
    X(cudaErrorUnknown, "unknown error")

struct CUstream_st {
    int device, used;
};

/* All streams. A number that a program passes as a stream may be none of these. */
static struct CUstream_st streams[4096];
static const size_t most_streams = sizeof streams / sizeof *streams;

static bool is_stream(cudaStream_t stream)
{
    return stream >= streams && stream < streams + most_streams;
}

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
    int count = __atomic_load_n(&device_count, __ATOMIC_RELAXED);
    return set_error(device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice);
}

/* As on a card, a launch fails if its stream belongs to a device that is not the current one. */
cudaError_t gr::check_stream(cudaStream_t stream)
{
    return !is_stream(stream) || stream->device == thread_device ? cudaSuccess
                                                                 : cudaErrorInvalidResourceHandle;
}

void gr_copy_bytes(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
    if (!count)
        return set_error(cudaErrorInvalidValue);
    *count = __atomic_load_n(&device_count, __ATOMIC_RELAXED);
    return cudaSuccess;
}

int gr_backend_device_count(int count)
{
    if (count < 1 || count > most_devices)
        return 0;
    __atomic_store_n(&device_count, count, __ATOMIC_RELAXED);
    return 1;
}

void gr_backend_return_to(int device)
{
    thread_device = device;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = check_device(device);
    if (!error)
        thread_device = device;
    return error;
}

cudaError_t cudaGetDevice(int *device)
{
    if (!device)
        return set_error(cudaErrorInvalidValue);
    *device = thread_device;
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
    prop->major = 9;
    prop->multiProcessorCount = device_sms;
    prop->l2CacheSize = device_l2_bytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    if (!value)
        return set_error(cudaErrorInvalidValue);
    if (check_device(device))
        return cudaErrorInvalidDevice;
    switch (attr) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)device_shared_optin; break;
    case cudaDevAttrMultiProcessorCount: *value = device_sms; break;
    case cudaDevAttrL2CacheSize: *value = device_l2_bytes; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth: *value = 0; break;
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    if (!stream || flags > cudaStreamNonBlocking)
        return set_error(cudaErrorInvalidValue);
    for (struct CUstream_st *slot = streams; slot < streams + most_streams; slot++)
        if (!__atomic_exchange_n(&slot->used, 1, __ATOMIC_ACQ_REL)) {
            slot->device = thread_device;
            *stream = slot;
            return cudaSuccess;
        }
    return set_error(cudaErrorMemoryAllocation);
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
    if (!is_stream(stream))
        return set_error(cudaErrorInvalidResourceHandle);
    __atomic_store_n(&stream->used, 0, __ATOMIC_RELEASE);
    return cudaSuccess;
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

/* There are no graphs on the emulator. */
cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus *status)
{
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Launches run when they are made, so an event that is recorded has happened. */
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t event, unsigned int)
{
    return set_error(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
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
