/* Launches of the kernels of sums by segment, and their checks of ids and offsets. For the files of
 * the engine only. */
#pragma once

#include "engine/internal.h"
#include "engine/groups.h"

#include <stdbool.h>

typedef struct {
    const gr_groups_request *request;
    gr_segment_job job;
    gr_groups_outcome *outcome;
    gr_error *error;
    size_t sms, shared_bytes;
    unsigned passes, fewest_passes;
    unsigned tiles, pack_tiles; /* of 32 columns, and of 32 packs of them */
    size_t row_blocks;          /* in_rows: the grid for segments .. */
    unsigned row_tiles;         /* .. and for tiles of their columns */
    bool are_few;               /* one launch is quickest */
    bool in_rows, in_words;     /* which methods are possible: sums of rows, or integer words */
    bool in_runs;               /* in_rows: one pass over ids and values */
    bool in_lanes, in_packs;    /* in_rows: by segment_lanes, or by segment_packs */
    bool in_order;              /* in_rows: unsorted rows are put in order first, .. */
    bool by_cluster;            /* .. by one launch */
    bool in_one_attempt;        /* in_words: one attempt, with words that hold all values */
} gr_segment_run;

/* Passes over ranges of segments for values of all exponents, which need many words. */
enum { GR_WIDE_PASSES = 2 };

/* Plans sums by segment: fills in what the request leaves open. */
gr_status gr_plan_segments(gr_segment_run *r);

bool gr_adds_floats(const gr_segment_run *r);

/* The count of segment numbers. With `by_row`, a segment's number is that of one of its rows. */
static inline size_t gr_numbered_segments(const gr_segment_run *r)
{
    return r->job.by_row ? r->request->rows : r->request->segments;
}

/* The most words that a sum may need, the one for flags included. */
size_t gr_most_segment_words(const gr_segment_run *r);

/* One launch. */
typedef struct {
    const char *kernel;
    gr_load load;
    gr_acc acc;
    size_t grid;
    unsigned tiles, block;
    size_t shared_bytes;
} gr_segment_step;

gr_status gr_launch_segment_step(gr_segment_run *r, gr_segment_step s);

/* The same for a kernel that reads no elements, with any number of threads. */
gr_status gr_launch_segment_threads(gr_segment_run *r, const char *kernel, size_t threads,
                                    unsigned block, size_t shared_bytes);

/* Computes the offsets of sorted ids, or checks the caller's offsets. */
gr_status gr_launch_segment_bounds(gr_segment_run *r);

/* Waits for the kernels' findings about ids and values, and fetches them. */
gr_status gr_fetch_segment_state(const gr_segment_run *r, gr_segment_state *state);

/* Reports in the outcome an invalid id or offset from number `first` on. */
gr_status gr_report_index(const gr_segment_run *r, const gr_segment_state *state, uint64_t first);

/* Checks ids or offsets if there are no sums: with `check`, as gr_launch_segments() does. */
gr_status gr_check_index(const gr_groups_request *request, gr_groups_outcome *outcome,
                         gr_error *error);
