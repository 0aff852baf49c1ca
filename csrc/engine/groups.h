/* Sums of groups of elements by kernels: along axes, or by segment. Does not depend on Python. */
#pragma once

#include "engine/engine.h"
#include "shared/axes.h"
#include "shared/matrix.h"
#include "shared/segment_sums.h"
#include "shared/c_linkage.h"

GR_C_BEGIN

/* Whether ids are sorted. */
typedef enum { GR_SORTED_UNKNOWN = -1, GR_NOT_SORTED, GR_SORTED } gr_sorted;

/* Running sums: forward; backward, from the last element on; with a 0 before the first entry. */
enum { GR_RUNNING = 1, GR_RUNNING_BACK = 2, GR_RUNNING_FROM_ZERO = 4 };

typedef struct {
    int load; /* a gr_load: the type of the values; along axes also GR_ELEMENTS_I64 */
    gr_acc acc;
    gr_sums sums; /* all but `base` */
    int device;
    void *stream;    /* a cudaStream_t */
    gr_times *times; /* NULL: not timed */
    int by_segment;  /* or along axes */

    /* Along axes. */
    gr_axes axes; /* in device memory. Its load, components, part_step and swapped are unused: the
                     parts of complex numbers are a dimension of their own */
    int running;  /* GR_RUNNING and more: running sums along the only axis of `axes.reduced` */
    int strategy; /* -1: chosen by shape */
    unsigned block, grid; /* 0: the default */
    int waits;            /* the caller waits for the sums: signals are handled between pieces */

    /* By segment. */
    gr_rows values, out; /* in device memory */
    gr_index index;      /* ids, one per row, or offsets, one more than segments */
    int by_offsets;
    gr_sorted sorted; /* of ids */
    int in_place;     /* exact sums are added to the contents of `out`, which has the values'
                         type; segments without rows do not change */
    uint64_t rows, columns, segments;
    int check; /* wait for the sums, and report invalid ids and offsets */

    /* A lesson's kernel, of kernels/keys or, for running sums, kernels/scan. NULL: the kernels of
     * segments/ and running/. */
    const gr_strategy *kernel;
} gr_groups_request;

typedef struct {
    gr_launched launched;
    int is_bad, is_unsorted; /* with `check`: an id or offset is out of range; ids are not sorted */
    uint64_t place;          /* where the first of these is */
    uint64_t found, next;    /* the wrong number, and the one before (ids) or after it (offsets) */
} gr_groups_outcome;

/* Host memory: `size` bytes from `base` on. */
typedef struct {
    void *base;
    size_t size;
} gr_span;

/* Puts the launches on the stream, and waits for them only with `check`. If an id or offset is
 * invalid, no sum is written. With no segments, ids and offsets are still checked; along axes there
 * must be at least one sum.
 *
 * With `host`, the request's arrays are in host memory: copies them to the device and the sums
 * back. host[0] spans the values, host[1] the mask or index, which may be empty, and host[2] the
 * sums. */
gr_status gr_sum_groups(gr_groups_request *request, const gr_span host[3],
                        gr_groups_outcome *outcome, gr_error *error);

/* Whether the stream is being captured into a CUDA graph. Times cannot be measured then. */
int gr_stream_is_captured(void *stream);

/* Finds the largest of `count` > 0 ids, as signed numbers, and waits for it. */
gr_status gr_largest_id(const gr_index *ids, uint64_t count, int device, void *stream,
                        int64_t *largest, gr_error *error);

/* --- for the files of the engine: the launches, on a device that is awake ----------------------
 */

gr_status gr_run_running(const gr_groups_request *request, gr_launched *launched, gr_error *error);

/* The request names a kernel of kernels/scan, or a user's. Its elements and entries are contiguous,
 * and n > 0: the caller has checked that. */
gr_status gr_launch_scan(const gr_groups_request *request, gr_launched *launched, gr_error *error);

/* The request names a kernel of kernels/keys. Its values, ids and sums are contiguous, the ids are
 * uint32, below `segments`, and sorted if the kernel needs that: the caller has checked them. */
gr_status gr_launch_keys(const gr_groups_request *request, gr_groups_outcome *outcome,
                         gr_error *error);
gr_status gr_run_axis(const gr_groups_request *request, gr_launched *launched, gr_error *error);
gr_status gr_run_segments(const gr_groups_request *request, gr_groups_outcome *outcome,
                          gr_error *error);

/* Launches segment sums, or digits with `sums.counts` elements per segment. */
gr_status gr_launch_segments(const gr_groups_request *request, gr_groups_outcome *outcome,
                             gr_error *error);

GR_C_END
