#include "transfer/pinned_memory.h"

#include "threads/pool.h"
#include "threads/processors.h"

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

enum { PIECE = 16 << 10 }; /* that a thread writes at a time */

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
    gr_parallel_beside(gr_filling_threads(), (bytes - 1) / PIECE + 1, write_task, &copy);
}

/* Where the runtime fails, nothing is known to be pinned; the next call says why. */
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
