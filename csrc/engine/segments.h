/* Sums by segment by kernels. Does not depend on Python. */
#ifndef GPUREDUCE_ENGINE_SEGMENTS_H
#define GPUREDUCE_ENGINE_SEGMENTS_H

#include "engine/axis.h"
#include "engine/engine.h"
#include "shared/segment_sums.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether ids are sorted. */
typedef enum { GR_SORTED_UNKNOWN = -1, GR_NOT_SORTED, GR_SORTED } gr_sorted;

typedef struct {
    gr_rows values, out; /* in device memory */
    gr_index index;      /* ids, one per row, or offsets, one more than segments */
    int by_offsets;
    gr_sorted sorted; /* of ids */
    uint64_t rows, columns, segments;
    int load; /* a gr_load: the type of the values */
    gr_acc acc;
    gr_sums sums; /* all but `base` */
    int check;    /* wait for the sums, and report wrong ids and offsets */
    int device;
    void *stream;              /* a cudaStream_t */
    gr_times *times;           /* NULL: not timed */
    const gr_strategy *kernel; /* a kernel of kernels/keys that adds up (keys.h); NULL: ours do */
} gr_segment_request;

typedef struct {
    gr_launched launched;
    int is_bad, is_unsorted; /* with `check`: an id or offset is wrong, ids are not sorted */
    uint64_t place;          /* of the first one */
    uint64_t found, next;    /* the number there, and the one before (ids) or after it (offsets) */
} gr_segment_outcome;

/* Puts the launches on the stream. Waits for them only with `check`. If an id or offset is wrong,
 * nothing is written to the sums. Without sums, ids and offsets are checked. */
gr_status gr_sum_segments(const gr_segment_request *request, gr_segment_outcome *outcome,
                          gr_error *error);

/* The same without times: for the files of the engine. */
gr_status gr_launch_segment_sums(const gr_segment_request *request, gr_segment_outcome *outcome,
                                 gr_error *error);

/* The launches for sums, or for digits of which `sums.counts` has the numbers of elements. */
gr_status gr_launch_segments(const gr_segment_request *request, gr_segment_outcome *outcome,
                             gr_error *error);

/* The same for arrays in host memory: copies them to the device and the sums back. The spans are
 * those of the values, the index and the sums. They hold all addresses. */
gr_status gr_sum_segments_of_host(gr_segment_request *request, const gr_span span[3],
                                  gr_segment_outcome *outcome, gr_error *error);

/* Finds the largest of `count` > 0 ids, as signed numbers, and waits for it. */
gr_status gr_largest_id(const gr_index *ids, uint64_t count, int device, void *stream,
                        int64_t *largest, gr_error *error);

#ifdef __cplusplus
}
#endif
#endif
