/* The race detector: finds conflicting accesses that no synchronization orders. C and C++.
 *
 * Two accesses race if different threads make them to the same bytes, at least one writes, at least
 * one is not atomic, and neither happens before the other. Accesses are ordered by:
 *  - block, cluster and grid barriers;
 *  - __syncwarp, for the lanes in its mask (as in CUDA, shuffles, votes and warp reductions order
 *    nothing);
 *  - the completion of a bulk copy, for the threads that wait for it;
 *  - the end of a launch;
 *  - a fence followed by an atomic in one thread, with an atomic that reads the first one's value
 *    followed by a fence in another thread;
 *  - the same with a volatile store for the first atomic, or a volatile load for the second: both
 *    are relaxed in PTX.
 * An atomic observes the earlier atomics at its address, as in PTX's causality order: they, but
 * nothing else that their threads did, happen before a store to that address that follows it.
 * volatile orders nothing else. A volatile load that polls a flag does not race with a volatile
 * store or an atomic that sets the flag, in another warp.
 *
 * The traced build watches the launches of one host thread, and runs them on that thread alone. */
#pragma once

#include "shared/c_linkage.h"

GR_C_BEGIN

/* Starts to watch the calling thread's launches. Returns 0 if out of memory. */
int gr_watch_start(void);

/* Stops. Returns the results as JSON, to be freed by the caller, or NULL if out of memory. */
char *gr_watch_stop(void);

GR_C_END
