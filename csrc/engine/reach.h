/* How kernels read a small array of host memory themselves, over the bus. */
#ifndef GPUREDUCE_REACH_H
#define GPUREDUCE_REACH_H

#include "engine/workspace.h"

/* Larger arrays come quicker by a copy that begins while they are still being staged. */
enum { GR_REACH_BYTES = 2 << 20 };

/* Where a kernel on the workspace's device finds the array: where it lies, if that is pinned
 * memory, or else in a copy in the workspace, which is there until the workspace's next sum. NULL
 * if there is no memory for one. At most GR_REACH_BYTES. */
const void *gr_within_reach(gr_workspace *workspace, const void *host, size_t bytes);

#endif
