#include "engine/pinned.h"

#include "clock.h"
#include "threads/pool.h"

#include <stdatomic.h>
#include <string.h>

int gr_filling_threads(void)
{
    /* So many read memory faster than an H200's link carries it away; the machine on which that was
     * measured has no more processors. */
    enum { MOST = 16 };
    int threads = gr_thread_count();
    return threads < MOST ? threads : MOST;
}

enum {
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

void gr_fill_pinned(void *to, const void *from, size_t bytes)
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

/* Where the runtime fails, nothing is pinned as far as anybody knows; the next call says why. */
static struct cudaPointerAttributes attributes_of(const void *host)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, host) == cudaSuccess)
        return attributes;
    (void)cudaGetLastError();
    return (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered};
}

gr_pinning gr_pinning_of(const void *host, size_t bytes)
{
    struct cudaPointerAttributes first = attributes_of(host);
    if (first.type == cudaMemoryTypeUnregistered) /* most are, and each question takes time */
        return (gr_pinning){.is_pageable = true};

    struct cudaPointerAttributes last = attributes_of((const char *)host + bytes - 1);
    if (last.type == cudaMemoryTypeUnregistered)
        return (gr_pinning){.is_pageable = true};
    const char *mapped = first.devicePointer, *end = last.devicePointer;
    bool is_whole = first.type == cudaMemoryTypeHost && last.type == cudaMemoryTypeHost && mapped &&
                    end == mapped + bytes - 1;
    return (gr_pinning){.mapped = is_whole ? mapped : NULL};
}
