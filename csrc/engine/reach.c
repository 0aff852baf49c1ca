/* A copy to the device costs as much time to begin and to wait for as some hundred kilobytes take
 * on the bus. A kernel that reads pinned memory itself needs none. It reads each element once, so
 * nothing is fetched twice; and what threads have just written, and still have in their caches, it
 * reads quicker than the copy engine does. */
#include "engine/reach.h"

#include "engine/pinned.h"

#include <stdint.h>

enum { ALIGNED = 256 /* as memory of the device is: no sum depends on where it was read */ };

const void *gr_within_reach(gr_workspace *workspace, const void *host, size_t bytes)
{
    const char *there = gr_pinning_of(host, bytes).mapped;
    if (there && (uintptr_t)there % ALIGNED == 0)
        return there;
    if (!workspace->staged &&
        cudaHostAlloc(&workspace->staged, GR_REACH_BYTES, cudaHostAllocMapped) != cudaSuccess) {
        workspace->staged = NULL;
        (void)cudaGetLastError();
        return NULL;
    }
    gr_fill_pinned(workspace->staged, host, bytes);
    return workspace->staged;
}
