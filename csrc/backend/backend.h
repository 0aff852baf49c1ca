/* The functions that differ between the CUDA build and the emulator's, apart from the CUDA runtime.
 * Implemented by csrc/cuda/backend.cu and csrc/emulator/runtime/backend.cpp. */
#pragma once

#include "shared/dtypes.h"
#include "shared/c_linkage.h"

#include <cuda_runtime_api.h>

GR_C_BEGIN

/* "cuda" or "emulator". */
const char *gr_backend_name(void);

/* The clock of kernel times: "cuda_event" or "emulator". */
const char *gr_backend_clock(void);

/* Details of this thread's last failed launch, in addition to its error code; may be "". */
const char *gr_backend_fault(void);

/* Whether this error destroys the device's context for the rest of the process. */
int gr_backend_is_lost(cudaError_t code);

/* CUB's DeviceReduce. With work == NULL it only sets *work_bytes to the scratch memory it needs. */
cudaError_t gr_backend_cub(const void *in, void *out, size_t n, gr_load load, gr_acc acc,
                           void *work, size_t *work_bytes, cudaStream_t stream);

/* Loads all 16-byte words of an array and stores one word: the least that a sum can do. */
cudaError_t gr_backend_load_only(const void *in, size_t bytes, unsigned *word, cudaStream_t stream);

/* Loads the kernels of these names out of an image (a cubin), for all devices, and sets entry[].
 * They stay loaded. Only the CUDA build can do this. */
cudaError_t gr_backend_load_kernels(const void *image, const char *const *symbol, int count,
                                    const void **entry);

/* Times repeated runs of the work that `launch` puts on the stream, in ms[repeats]. `launch`
 * returns 0 on success. In the CUDA build, a run is one graph of `in_a_row` calls of `launch`, and
 * its time is divided by `in_a_row`, because starting a graph takes as long as a small kernel. In
 * the emulator, a run is one call. */
cudaError_t gr_backend_replay(cudaStream_t stream, int (*launch)(void *context), void *context,
                              unsigned in_a_row, unsigned warmups, unsigned repeats, double *ms);

/* A range of memory: the addresses of its first and its last byte. */
typedef struct {
    uintptr_t first, last;
} gr_range;

/* Whether kernels can read all these bytes. If so, sets *known to the bounds of the allocations
 * that hold them, or to an empty range if the bounds are unknown. */
int gr_backend_can_read(gr_range bytes, gr_range *known);

/* The most elements of a view that one launch sums. Ctrl-C takes effect between launches. */
size_t gr_backend_elements_at_once(void);

/* Whether kernels can read any memory of the process, as the emulator's can. */
int gr_backend_reads_host_memory(void);

/* Called around a signal handler, which may make calls of its own. gr_backend_put_aside() saves the
 * calling thread's state (its device; the emulator's running team). It returns NULL if there is no
 * memory. gr_backend_take_up() restores the state. */
void *gr_backend_put_aside(void);
void gr_backend_take_up(void *aside);

/* Makes a device the calling thread's current one again, at the end of a call that has changed it.
 * Leaves it if the device has no context: to make one takes memory and time, and without one the
 * program has not used the device. */
void gr_backend_return_to(int device);

/* Settings of the emulator; the CUDA build ignores them. Order: 0 forward, 1 reverse, 2 random,
 * 3 lockstep. The order applies to the calling thread. A memory limit applies to all threads until
 * the limit of its token is set to 0. Of several limits, the latest counts.
 * gr_backend_memory_limit() returns 0 if there is no memory for the limit itself. */
void gr_backend_schedule(int order, uint64_t seed);
int gr_backend_memory_limit(uint64_t token, size_t bytes);
size_t gr_backend_live_bytes(void);
/* From now on, puts memory without access before and after each new allocation of device memory,
 * and reports a kernel's access there as a failed launch. For a process that runs kernels of users:
 * the setting is for the calling thread's launches, and stays. */
void gr_backend_guard_memory(void);
int gr_backend_traced(void);

/* How many devices the emulator plays. Returns 0 if it cannot play so many. */
int gr_backend_device_count(int count);

GR_C_END
