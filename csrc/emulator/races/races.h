/* The race detector: which accesses to the same bytes nothing orders. C and C++.
 *
 * Two accesses race if two threads make them, at least one writes, not both are atomic, and neither
 * is known to have happened before the other. What orders: a block's, a cluster's and the grid's
 * barriers; __syncwarp, for the lanes that its mask names (shuffles, votes and warp reductions
 * order nothing, as CUDA has it); a bulk copy's end, for those who wait for it; the end of a
 * launch; and atomics, from what a thread did before a fence ahead of its atomic to what another
 * does after a fence behind the atomic that reads it. volatile orders nothing.
 *
 * The traced build watches the launches of one host thread, and runs them on that thread alone. */
#ifndef GPUREDUCE_EMULATOR_RACES_H
#define GPUREDUCE_EMULATOR_RACES_H

#ifdef __cplusplus
extern "C" {
#endif

/* The calling thread's launches are watched from now on. 0: no memory. */
int gr_watch_start(void);

/* No longer; what was found, as JSON, to be freed by the caller. NULL: no memory. */
char *gr_watch_stop(void);

#ifdef __cplusplus
}
#endif

#endif
