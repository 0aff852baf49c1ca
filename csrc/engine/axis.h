/* Sums along axes by kernels. Does not depend on Python. */
#ifndef GPUREDUCE_ENGINE_AXIS_H
#define GPUREDUCE_ENGINE_AXIS_H

#include "engine/engine.h"
#include "shared/axes.h"
#include "shared/matrix.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    gr_axes axes; /* in device memory, of which load, components, part_step and swapped are unused:
                     the parts of complex numbers are a dimension of their own */
    int load;     /* a gr_load, or GR_ELEMENTS_I64 */
    gr_acc acc;
    gr_sums sums;         /* all but `base` */
    int strategy;         /* -1: chosen by shape */
    unsigned block, grid; /* 0: the default */
    int device;
    void *stream;    /* a cudaStream_t */
    gr_times *times; /* NULL: not timed */
    int waits;       /* the caller waits for the sums: signals are handled between pieces */
} gr_axis_request;

/* Puts the launches on the stream and does not wait for them. There must be at least one sum. */
gr_status gr_sum_axis(const gr_axis_request *request, gr_launched *launched, gr_error *error);

/* Whether the stream is being captured into a CUDA graph. Times cannot be measured then. */
int gr_stream_is_captured(void *stream);

/* Host memory: `size` bytes from `base` on. */
typedef struct {
    void *base;
    size_t size;
} gr_span;

/* The same for an array in host memory: copies it to the device and the sums back. The spans are
 * those of the array, the mask, which may be empty, and the sums. They hold all addresses. */
gr_status gr_sum_axis_of_host(gr_axis_request *request, const gr_span span[3],
                              gr_launched *launched, gr_error *error);

#ifdef __cplusplus
}
#endif
#endif
