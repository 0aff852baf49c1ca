/* Devices, versions and errors. */
#include "engine/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gr_status gr_fail(gr_error *error, gr_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->status = status;
    error->name[0] = 0;
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}

gr_status gr_fail_cuda(gr_error *error, cudaError_t code, const char *call, const char *file,
                       int line)
{
    const char *fault = code == cudaErrorLaunchFailure ? gr_backend_fault() : "";
    (void)cudaGetLastError(); /* so that the next call starts clean */
    error->status = code == cudaErrorMemoryAllocation ? GR_NO_MEMORY : GR_CUDA_ERROR;
    snprintf(error->name, sizeof error->name, "%s", cudaGetErrorName(code));
    snprintf(error->message, sizeof error->message, "%s: %s, from %s at %s:%d%s%s",
             cudaGetErrorName(code), cudaGetErrorString(code), call, file, line,
             fault[0] ? "\n" : "", fault);
    return error->status;
}

gr_status gr_device_count(int *count, gr_error *error)
{
    *count = 0;
    error->status = GR_OK;
    TRY(cudaGetDeviceCount(count));
done:
    return error->status;
}

gr_status gr_device_at(int index, gr_device *device, gr_error *error)
{
    struct cudaDeviceProp properties;
    int memory_khz = 0, bus_bits = 0, clock_khz = 0;

    error->status = GR_OK;
    TRY(cudaGetDeviceProperties(&properties, index));
    TRY(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, index));
    TRY(cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, index));
    TRY(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index));

    memset(device, 0, sizeof *device);
    snprintf(device->name, sizeof device->name, "%s", properties.name);
    device->major = properties.major;
    device->minor = properties.minor;
    device->sms = properties.multiProcessorCount;
    device->memory_bytes = properties.totalGlobalMem;
    device->l2_bytes = (size_t)properties.l2CacheSize;
    /* Double data rate: two transfers per clock. */
    device->peak_gb_s = 2.0 * memory_khz * 1e3 * bus_bits / 8 / 1e9;
    device->clock_mhz = clock_khz / 1e3;
done:
    return error->status;
}

void gr_versions(int *runtime, int *driver)
{
    *runtime = *driver = 0;
    (void)cudaRuntimeGetVersion(runtime);
    (void)cudaDriverGetVersion(driver);
}
