/* The engine: sums an array with the strategy of a given number. Does not depend on Python. */
#pragma once

#include "shared/elements.h"
#include "shared/registry.h"
#include "shared/samples.h"
#include "backend/status.h"
#include "exact/exact.h"
#include "shared/c_linkage.h"

GR_C_BEGIN

/* How block sums become one number. */
typedef enum { GR_FINISH_DEFAULT, GR_FINISH_HOST, GR_FINISH_RELAUNCH, GR_FINISH_SINGLE } gr_finish;

/* The events that time one sum, or two sums in a row. See gr_take_times() below. */
typedef struct gr_times gr_times;

typedef struct {
    const void *data; /* contiguous, naturally aligned; in host memory, or see on_device */
    size_t n;
    gr_load load; /* GR_LOAD_any: `elements` describes the array instead */
    gr_acc acc;
    int strategy;
    int choose;           /* chooses strategy, block and grid, as `fast` */
    unsigned block, grid; /* 0: the default */
    gr_finish finish;
    int device;
    int on_device;               /* data lies on `device` and is used in place */
    const gr_elements *elements; /* for GR_LOAD_any */
    const gr_samples *samples;   /* for GR_LOAD_samples; needs on_device */
    void *stream;                /* a cudaStream_t for the launches; NULL: our own */
    gr_times *times;             /* records copies and launches; NULL: the sum is not timed */
} gr_request;

typedef struct {
    gr_value value; /* the sum, of strategies without DIGITS */
    gr_exact exact; /* the sum, of strategies with DIGITS */
    double init_ms;
    unsigned block, grid; /* of the first launch */
    unsigned launches;
    gr_finish finish;
} gr_outcome;

/* The first launch of a call, and the number of its launches. */
typedef struct {
    int strategy;
    unsigned block, grid, launches;
} gr_launched;

typedef struct {
    char name[256];
    int major, minor, sms;
    size_t memory_bytes, l2_bytes;
    double peak_gb_s; /* memory clock times bus width; 0 where unknown */
    double clock_mhz;
} gr_device;

/* A row of the table behind `fast`. */
typedef struct {
    size_t max_bytes;       /* the row applies to inputs up to this size */
    unsigned element_bytes; /* and to elements of this size; 0: any size */
    int strategy;
    unsigned block;
    unsigned grid;          /* used if blocks_per_sm is 0 */
    unsigned blocks_per_sm; /* if grid is 0 too: the strategy's own grid */
} gr_choice;

enum { GR_MAX_CHOICES = 96 };

/* Sets or gets the rows for a device, in the order in which they are tried. Setting no rows
 * restores the defaults. */
gr_status gr_set_choices(int device, const gr_choice *rows, int count, gr_error *error);
int gr_get_choices(int device, gr_choice rows[GR_MAX_CHOICES]);

/* A stream and scratch memory, kept from call to call. Each concurrent call has its own. Opening a
 * workspace makes its device the thread's current device, because a producer that receives the
 * stream looks up its own stream on the current device. *init_ms is the time to create the device's
 * context, or 0 if it existed. */
typedef struct gr_workspace gr_workspace;
gr_status gr_open_workspace(int device, gr_workspace **workspace, double *init_ms, gr_error *error);
void *gr_workspace_stream(const gr_workspace *workspace);

/* Keeps the workspace for the next call if this call ended well. Any other call (an error, an
 * interruption, an exception after the sum) may have left a nonzero ticket, partial totals or
 * running kernels. The workspace is then freed, which waits for its stream. */
void gr_close_workspace(gr_workspace *workspace, int ended_well);

/* Computes a sum. Sets what the request leaves to choose. */
gr_status gr_sum(gr_request *request, gr_outcome *outcome, gr_error *error);

/* The same in two steps, so that several devices work at the same time, in a workspace of the
 * request's device that the caller opens and closes. Sets the thread's current device again, since
 * code that ran after the opening may have changed it. gr_begin_sum() puts the launches of the
 * first piece on the stream, usually all of them. gr_end_sum() waits for the result, and makes the
 * sums of further pieces. What the request points to must stay until then. A workspace whose sum
 * has begun and not ended has not ended well. */
gr_status gr_begin_sum(gr_workspace *workspace, gr_request *request, gr_outcome *outcome,
                       gr_error *error);
gr_status gr_end_sum(gr_workspace *workspace, gr_outcome *outcome, gr_error *error);

/* Returns the calling thread's current device; -1 if there is none. Calls of the engine change it.
 * gr_backend_return_to() changes it back. */
int gr_current_device(void);

typedef struct {
    double h2d, kernel, d2h; /* copy to the device, launches, copy of the result */
} gr_milliseconds;

/* Returns the events for a request's `times`, or NULL if there is no host memory. The caller owns
 * them. Sums of one stream may use them in turn: their times are added up. */
gr_times *gr_take_times(int device);

/* Returns the times of sums that have ended. Waits for the last event, which follows the result.
 * Several threads may read the same times. Fails in a child process of the one that took them. */
gr_status gr_read_times(const gr_times *times, gr_milliseconds *ms, gr_error *error);

/* Gives the events back. They are kept for later sums if all calls with them ended well. */
void gr_drop_times(gr_times *times, int ended_well);

/* Whether so many times are in use that new ones should be read and dropped at once: the events
 * take memory of the driver. */
int gr_many_times_in_use(void);

typedef struct {
    unsigned copies; /* of the input, summed in turn; enough copies do not stay in the L2 cache */
    unsigned warmups, repeats;
    size_t offset; /* elements from a 512-byte boundary to the start of each copy */
    int apart;     /* separates the sums by a small memset, and subtracts the memsets' time */
    int load_only; /* in place of each sum, only loads the array: the limit of all sums */
} gr_measurement;

/* Times the launches only. ms[] gets `repeats` times of one sum, each the mean over all copies. For
 * small arrays, it is the mean over several rounds of the copies. */
gr_status gr_measure(gr_request *request, const gr_measurement *how, double *ms,
                     gr_outcome *outcome, gr_error *error);

/* Copies an array to pinned memory, as a transfer to a device does, without the transfer. For
 * benchmarks. */
void gr_write_pinned(void *to, const void *from, size_t bytes);

/* Allocates device memory in the order of a stream; cudaFreeAsync frees it. The memory comes from a
 * pool that keeps some freed memory. CUDA's default pool would unmap it at each synchronization and
 * map memory again in each call. */
gr_status gr_allocate(int device, size_t bytes, void *stream, void **memory, gr_error *error);

/* Frees the scratch memory, streams and events that are kept for the next call. */
void gr_release(void);

/* Fails if an earlier kernel has faulted on the current device. After a fault, the driver does not
 * recognize any pointer, and only other calls report the fault. */
gr_status gr_check_context(gr_error *error);

/* Finds the device that a pointer belongs to. Fails if it belongs to none. */
gr_status gr_pointer_device(const void *pointer, int *device, gr_error *error);

/* Counts the devices. If there is none, the error gives the reason. */
gr_status gr_device_count(int *count, gr_error *error);
gr_status gr_device_at(int index, gr_device *device, gr_error *error);

/* Versions in CUDA's numbering, 13000 for 13.0. *driver is 0 without a driver. */
void gr_versions(int *runtime, int *driver);

GR_C_END
