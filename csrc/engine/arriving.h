/* An array of the host's in pinned memory, to which it is still being copied while kernels read it:
 * shared by the engine and the kernels. */
#ifndef GPUREDUCE_ARRIVING_H
#define GPUREDUCE_ARRIVING_H

#include <stddef.h>

/* What threads write at a time. Small enough that the first piece is there when a kernel starts,
 * large enough that to share them out costs little. */
enum {
    GR_PIECE_BYTES = 16 << 10,
    GR_MARK_STEP = 8 /* from mark to mark: a line of the cache has one, as one thread writes it */
};

/* What each word of 4 bytes is before it is written, where that is promised: who finds another has
 * found what was written. It is a NaN of float32 that no computation makes, no small number and no
 * text; an array may have it even so, and is looked at twice then. */
#define GR_BLANK 0x7fa5c3e1u

/* Kernels leave the sums of at most so many blocks to the host, each a word of 8 bytes from the
 * last: it looks out for the result anyway, and a ticket's two journeys to memory are saved. */
enum { GR_MOST_BLOCK_SUMS = 64, GR_BLOCK_SUM_BYTES = 8 };

typedef struct {
    const void *data; /* aligned to 128 bytes at least */
    const unsigned long long
        *mark;                  /* of each piece: mark[GR_MARK_STEP * piece]; NULL: all is there */
    unsigned long long arrived; /* it is this once the piece is there */
    size_t blank;               /* from the first on, so many bytes were before that */
} gr_arriving;

#endif
