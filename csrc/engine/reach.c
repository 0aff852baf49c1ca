/* A copy to the device costs as much time to begin and to wait for as some hundred kilobytes take
 * on the bus. A kernel that reads pinned memory itself needs none. It reads each element once, so
 * nothing is fetched twice; and what threads have just written, and still have in their caches, it
 * reads quicker than the copy engine does. */
#include "engine/reach.h"

#include "clock.h"
#include "engine/pinned.h"
#include "threads/pool.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum {
    ALIGNED = 256,    /* as memory of the device is: the sum must not depend on where it was read */
    SHARE = 32 << 10, /* of a thread, at least */
    /* Below, to wake threads costs more than it saves; measured on one machine, an H200 and 16
     * processors. Not staging's limit: there the link is at work while one thread fills, here
     * nothing is. */
    ALONE_BELOW = 512 << 10,
    CACHE_LINE = 64
};

typedef struct {
    char *to;
    const char *from;
    size_t bytes, share;
} copying;

static void copy_share(size_t task, void *context)
{
    const copying *copy = context;
    size_t at = task * copy->share;
    size_t bytes = copy->bytes - at < copy->share ? copy->bytes - at : copy->share;
    memcpy(copy->to + at, copy->from + at, bytes);
}

/* Whether there was an array to share a moment ago: helpers look out for the next for a while. The
 * second such array may have to wake them, once. */
static int come_in_a_row(void)
{
    static const double AWAKE_MS = 0.4; /* less than they look out; see threads/pool.c */
    static _Atomic double last;
    double now = gr_now_ms();
    return now - atomic_exchange_explicit(&last, now, memory_order_relaxed) < AWAKE_MS;
}

static void copy_by_threads(void *to, const void *from, size_t bytes)
{
    copying copy = {.to = to, .from = from, .bytes = bytes};
    size_t threads = (size_t)gr_filling_threads(), most = bytes / SHARE;
    threads = threads < most ? threads : most;
    if (threads < 2 || (!come_in_a_row() && bytes < ALONE_BELOW)) {
        memcpy(to, from, bytes);
        return;
    }
    copy.share = (bytes / threads / CACHE_LINE + 1) * CACHE_LINE;
    gr_parallel_beside((int)threads, (bytes - 1) / copy.share + 1, copy_share, &copy);
}

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
    copy_by_threads(workspace->staged, host, bytes);
    return workspace->staged;
}
