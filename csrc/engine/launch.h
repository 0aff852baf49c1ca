/* Launches that reduce elements on the device to one or a few values. */
#pragma once

#include "engine/workspace.h"

/* Plans the first launch over n elements. For a library, the plan has no kernel. */
gr_status gr_plan_first(const gr_request *request, size_t n, gr_plan *plan, gr_error *error);

/* Allocates scratch memory for that plan and for the plans of later launches, and loads their
 * kernels. */
gr_status gr_make_room(const gr_request *request, const gr_plan *plan, size_t n,
                       gr_workspace *workspace, gr_error *error);

/* Puts the launches on the stream. If one value is left in the end, it is written to `last`, unless
 * `last` is NULL or the strategy needs the value in device memory. */
gr_status gr_reduce(const gr_request *request, gr_plan plan, const void *data, size_t n,
                    gr_workspace *workspace, cudaStream_t stream, void *last, gr_reduced *reduced,
                    gr_error *error);

/* Puts one launch on the stream. `in` points to the kernel's first argument. */
gr_status gr_launch_plan(const gr_plan *plan, void *in, void *out, size_t n,
                         gr_workspace *workspace, cudaStream_t stream, gr_error *error);

/* Sets block and grid of a request for `exact`, unless it has a block. */
void gr_shape_exact(gr_request *request);

/* Sets strategy, block and grid of a request for `fast`. */
void gr_choose(gr_request *request);
