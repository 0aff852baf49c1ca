#include "transfer/pinned_memory.h"

#include "threads/pool.h"
#include "threads/processors.h"

#include <string.h>

int gr_filling_threads(void)
{
    /* 16 threads read memory faster than an H200's PCIe link transfers it. More were not measured:
     * that machine has 16 processors. */
    enum { MOST = 16 };
    int threads = gr_thread_count();
    return threads < MOST ? threads : MOST;
}

/* Demotes freshly written bytes from the processor's private cache to the shared cache, from which
 * PCIe transfers are faster. Takes longer than writing the bytes. On processors without the
 * instruction cldemote, it is a no-op. */
#if defined(__x86_64__)
__attribute__((target("cldemote"))) static void move_on(char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_ia32_cldemote(at + i);
}
#else
static void move_on(char *at, size_t bytes)
{
    (void)at, (void)bytes;
}
#endif

void gr_write_piece(char *pinned, const char *from, size_t bytes)
{
    memcpy(pinned, from, bytes);
    move_on(pinned, bytes);
}

enum { PIECE = 16 << 10 }; /* bytes that a thread writes at a time */

typedef struct {
    char *to;
    const char *from;
    size_t bytes;
} copying;

static void write_task(size_t piece, void *context)
{
    const copying *copy = context;
    size_t at = piece * PIECE, left = copy->bytes - at;
    gr_write_piece(copy->to + at, copy->from + at, left < PIECE ? left : PIECE);
}

void gr_write_pinned(void *to, const void *from, size_t bytes)
{
    copying copy = {.to = to, .from = from, .bytes = bytes};
    gr_parallel_beside(0, gr_filling_threads(), (bytes - 1) / PIECE + 1, write_task, &copy);
}

/* If the runtime fails, counts the memory as not pinned. The next call reports the error. */
static bool is_unregistered(const void *host)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, host) == cudaSuccess)
        return attributes.type == cudaMemoryTypeUnregistered;
    (void)cudaGetLastError();
    return true;
}

bool gr_is_pageable(const void *host, size_t bytes)
{
    return is_unregistered(host) || is_unregistered((const char *)host + bytes - 1);
}
