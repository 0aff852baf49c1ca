/* The engine: from a host array and the number of a strategy to the sum. No Python. */
#ifndef GPUREDUCE_ENGINE_H
#define GPUREDUCE_ENGINE_H

#include "shared/elements.h"
#include "shared/registry.h"
#include "shared/samples.h"
#include "backend/status.h"
#include "exact/exact.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How block sums become one number. */
typedef enum { GR_FINISH_DEFAULT, GR_FINISH_HOST, GR_FINISH_RELAUNCH, GR_FINISH_SINGLE } gr_finish;

typedef struct {
    const void *data; /* contiguous, naturally aligned; in host memory, or see on_device */
    size_t n;
    gr_load load; /* GR_LOAD_any: `elements` describes the array instead */
    gr_acc acc;
    int strategy;
    unsigned block, grid; /* 0: the default */
    gr_finish finish;
    int device;
    int on_device;               /* data lies on `device` and is used in place */
    const gr_elements *elements; /* for GR_LOAD_any */
    const gr_samples *samples;   /* for GR_LOAD_samples, which is on every device */
    void *stream;                /* a cudaStream_t to work on; NULL: one of our own */
    int timed;                   /* whether to time the parts, which takes some microseconds */
} gr_request;

typedef struct {
    gr_value value; /* or, of a strategy with DIGITS: */
    gr_exact exact;
    double kernel_ms, h2d_ms, d2h_ms, init_ms;
    unsigned block, grid; /* of the first launch */
    unsigned launches;
    gr_finish finish;
} gr_outcome;

typedef struct {
    char name[256];
    int major, minor, sms;
    size_t memory_bytes, l2_bytes;
    double peak_gb_s; /* memory clock times bus width; 0 where unknown */
    double clock_mhz;
} gr_device;

/* A row of the table behind `fast`. */
typedef struct {
    size_t max_bytes;       /* it holds for inputs up to this size */
    unsigned element_bytes; /* and for elements of this size; 0: of any */
    int strategy;
    unsigned block;
    unsigned grid;          /* where the next line is 0 */
    unsigned blocks_per_sm; /* where both are 0: the strategy's own grid */
} gr_choice;

enum { GR_MAX_CHOICES = 96 };

/* The rows for a device, in the order they are tried; no rows bring the defaults back. */
gr_status gr_set_choices(int device, const gr_choice *rows, int count, gr_error *error);
int gr_get_choices(int device, gr_choice rows[GR_MAX_CHOICES]);

/* A stream and scratch memory, kept from call to call; concurrent calls have one each. Opening one
 * makes its device the thread's: a producer that is told the stream asks what its own is there.
 * *init_ms is what it took to wake the device, if it slept. */
typedef struct gr_workspace gr_workspace;
gr_status gr_open_workspace(int device, gr_workspace **workspace, double *init_ms, gr_error *error);
void *gr_workspace_stream(const gr_workspace *workspace);

/* Keeps the workspace for the next call if this one ended well. Any other call (an error, an
 * interruption, an exception on the way out) may have left tickets drawn, totals half filled or
 * kernels running: then the workspace is freed, which waits for its stream. */
void gr_close_workspace(gr_workspace *workspace, int ended_well);

/* If `choose`, the request's strategy, block and grid are chosen here: what `fast` is. */
gr_status gr_sum(gr_request *request, int choose, gr_outcome *outcome, gr_error *error);

/* The same, in a workspace of the request's device that the caller has opened, and closes; what it
 * has called since may have made another device the thread's. */
gr_status gr_sum_in(gr_workspace *workspace, gr_request *request, int choose, gr_outcome *outcome,
                    gr_error *error);

typedef struct {
    unsigned copies; /* of the input, taken in turn; enough of them do not stay in the L2 cache */
    unsigned warmups, repeats;
    size_t offset; /* elements that each copy is shifted off the 512-byte boundary */
    int apart;     /* something else is between any two sums, and the time of that is taken off */
} gr_measurement;

/* Times only the launches: ms[] gets `repeats` times of one sum, each the mean over the copies
 * and, of arrays that take little time, over several rounds of them. */
gr_status gr_measure(gr_request *request, int choose, const gr_measurement *how, double *ms,
                     gr_outcome *outcome, gr_error *error);

/* Writes an array to pinned memory, as a host array is before a device has it, and no more: for who
 * measures what that takes. */
void gr_write_pinned(void *to, const void *from, size_t bytes);

/* Frees what is kept for the next call: scratch memory, streams, events. */
void gr_release(void);

/* The device that a pointer belongs to; an error if it belongs to none. */
gr_status gr_pointer_device(const void *pointer, int *device, gr_error *error);

/* How many devices there are; an error says why there is none. */
gr_status gr_device_count(int *count, gr_error *error);
gr_status gr_device_at(int index, gr_device *device, gr_error *error);

/* Versions as CUDA counts them, 13000 for 13.0; driver is 0 without one. */
void gr_versions(int *runtime, int *driver);

#ifdef __cplusplus
}
#endif
#endif
