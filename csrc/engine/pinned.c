#include "engine/pinned.h"

#include "threads/pool.h"

int gr_filling_threads(void)
{
    /* So many read memory faster than an H200's link carries it away; the machine on which that was
     * measured has no more processors. */
    enum { MOST = 16 };
    int threads = gr_thread_count();
    return threads < MOST ? threads : MOST;
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
