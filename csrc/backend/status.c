#include "backend/status.h"

#include "backend/backend.h"

#include <stdarg.h>
#include <stdio.h>

gr_status gr_fail(gr_error *error, gr_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->status = status;
    error->name[0] = 0;
    error->lost = 0;
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}

gr_status gr_fail_cuda(gr_error *error, cudaError_t code, const char *call, const char *file,
                       int line)
{
    const char *fault = code == cudaErrorLaunchFailure ? gr_backend_fault() : "";
    (void)cudaGetLastError(); /* clears the error for the next call */
    error->status = code == cudaErrorMemoryAllocation ? GR_NO_MEMORY : GR_CUDA_ERROR;
    snprintf(error->name, sizeof error->name, "%s", cudaGetErrorName(code));
    error->lost = gr_backend_is_lost(code);
    snprintf(error->message, sizeof error->message, "%s: %s, from %s at %s:%d%s%s%s",
             cudaGetErrorName(code), cudaGetErrorString(code), call, file, line,
             error->lost
                 ? "\nA kernel has faulted, which destroyed the CUDA context of this process: "
                   "restart the process."
                 : "",
             fault[0] ? "\n" : "", fault);
    return error->status;
}
