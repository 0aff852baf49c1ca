/* What differs between the builds, CUDA's and the emulator's, beside the runtime's own calls.
 * csrc/cuda/backend.cu and csrc/emulator/runtime/backend.cpp implement it. */
#ifndef GPUREDUCE_BACKEND_H
#define GPUREDUCE_BACKEND_H

#include "shared/dtypes.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "cuda" or "emulator". */
const char *gr_backend_name(void);

/* Where kernel times come from: "cuda_event" or "emulator". */
const char *gr_backend_clock(void);

/* What the last failed launch of this thread has to say beyond its error code; may be "". */
const char *gr_backend_fault(void);

/* Whether the device's context is lost with this error, for this process and for good. */
int gr_backend_is_lost(cudaError_t code);

/* CUB's DeviceReduce. With work == NULL it only says how much scratch memory it wants. */
cudaError_t gr_backend_cub(const void *in, void *out, size_t n, gr_load load, gr_acc acc,
                           void *work, size_t *work_bytes, cudaStream_t stream);

/* Runs what `launch` puts on the stream (it returns 0 if that went well) again and again, and takes
 * the time of each run in ms[repeats]. Where there are graphs a run is one graph, of what `launch`
 * does when it is called `in_a_row` times, and its time is divided by that: to start a graph takes
 * as long as a small kernel. */
cudaError_t gr_backend_replay(cudaStream_t stream, int (*launch)(void *context), void *context,
                              unsigned in_a_row, unsigned warmups, unsigned repeats, double *ms);

/* Bytes of memory, the first and the last one. */
typedef struct {
    uintptr_t first, last;
} gr_range;

/* Whether kernels can read all these bytes. Then *known is what else they can read around them, for
 * as long as it is not freed; or, if that is not known, a range that holds no byte. */
int gr_backend_can_read(gr_range bytes, gr_range *known);

/* How many elements of a view one launch takes at most: Ctrl-C is heard between launches. */
size_t gr_backend_elements_at_once(void);

/* Whether kernels can read any memory of the process, as the emulator's can. */
int gr_backend_reads_host_memory(void);

/* Around a signal handler, which may make calls of its own: puts aside the calling thread's state
 * (its device; the emulator's running team), and takes it up again. NULL: no memory. */
void *gr_backend_put_aside(void);
void gr_backend_take_up(void *aside);

/* Settings of the emulator; the CUDA build ignores them. Order: 0 forward, 1 reverse, 2 random,
 * 3 lockstep. The order belongs to the calling thread, a memory limit to all until its token has 0
 * bytes; the latest one holds. 0: no memory for that. */
void gr_backend_schedule(int order, uint64_t seed);
int gr_backend_memory_limit(uint64_t token, size_t bytes);
size_t gr_backend_live_bytes(void);
int gr_backend_traced(void);

#ifdef __cplusplus
}
#endif
#endif
