#include "engine/pinned.h"

#include "threads/pool.h"
#include "threads/processors.h"

#include <stdint.h>
#include <string.h>

int gr_filling_threads(void)
{
    /* So many read memory faster than an H200's link carries it away; the machine on which that was
     * measured has no more processors. */
    enum { MOST = 16 };
    int threads = gr_thread_count();
    return threads < MOST ? threads : MOST;
}

/* Where processors do not know the instruction, it does nothing. */
#if defined(__x86_64__)
__attribute__((target("cldemote"))) void gr_move_on(char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_ia32_cldemote(at + i);
}
#else
void gr_move_on(char *at, size_t bytes)
{
    (void)at, (void)bytes;
}
#endif

void gr_write_piece(char *pinned, const char *from, size_t bytes)
{
    memcpy(pinned, from, bytes);
    gr_move_on(pinned, bytes);
}

void gr_write_words(char *pinned, const char *from, size_t bytes)
{
    size_t words = bytes / sizeof(uint64_t);
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, from + i * sizeof word, sizeof word);
        __atomic_store_n((uint64_t *)pinned + i, word, __ATOMIC_RELAXED);
    }
    size_t at = words * sizeof(uint64_t);
    memcpy(pinned + at, from + at, bytes - at);
}

typedef struct {
    char *to;
    const char *from;
    size_t bytes;
} copying;

static void write_task(size_t piece, void *context)
{
    const copying *copy = context;
    size_t at = piece * GR_PIECE_BYTES, left = copy->bytes - at;
    gr_write_piece(copy->to + at, copy->from + at, left < GR_PIECE_BYTES ? left : GR_PIECE_BYTES);
}

void gr_write_pinned(void *to, const void *from, size_t bytes)
{
    copying copy = {.to = to, .from = from, .bytes = bytes};
    gr_parallel_beside(gr_filling_threads(), (bytes - 1) / GR_PIECE_BYTES + 1, write_task, &copy);
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
