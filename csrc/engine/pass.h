/* Single launches of a sum on zeros, for counting a kernel's operations. */
#pragma once

#include "engine/groups.h"
#include "shared/c_linkage.h"

GR_C_BEGIN

typedef struct {
    unsigned block, grid;
    unsigned team_blocks; /* blocks that must be resident together */
    unsigned outs;        /* values left, the elements of the next pass */
} gr_pass;

/* Plans the first launch over request->n elements, or a launch over request->n block sums if
 * `later`. */
gr_status gr_plan_pass(const gr_request *request, int later, gr_pass *pass, gr_error *error);

/* The memory by which the blocks of a launch find out which of them finishes last. The pointers
 * that the launch does not use are NULL.
 * - `ticket` counts the blocks that have finished.
 * - `word` counts them in each of `words` words, in the bits from `shift` on.
 * - `marked` has a sum per block, with a mark once the sum is written. */
typedef struct {
    unsigned *ticket;
    uint64_t *word;
    unsigned words, shift;
    void *marked;
    size_t marked_bytes;
} gr_arrivals;

/* Runs the launch that gr_plan_pass() plans, on zeros. Before the launch it calls `prepare`, which
 * may preset the arrivals; they start at 0. `prepare` returns 0 if there is no memory. Memory is
 * allocated only where the kernel touches it. */
gr_status gr_run_pass(const gr_request *request, int later,
                      int (*prepare)(void *context, const gr_arrivals *arrivals), void *context,
                      gr_error *error);

/* The same for the first launch of a sum of rows * columns zeros along `axis`, 0 or 1. Fills in the
 * request's axes and the address of its sums. *launched must be zero at first. */
gr_status gr_run_axis_pass(gr_groups_request *request, const size_t shape[2], int axis,
                           int (*prepare)(void *context, const gr_arrivals *arrivals),
                           void *context, gr_launched *launched, gr_error *error);

GR_C_END
