/* What strategy `exact` has in shared memory and hands to the host: for the engine and its kernel.
 */
#ifndef GPUREDUCE_EXACT_LAYOUT_H
#define GPUREDUCE_EXACT_LAYOUT_H

#include "exact/exact.h"

enum {
    GR_EXACT_WORDS = GR_EXACT_DIGITS + 1, /* the digits, and the flags in the last word */
    GR_EXACT_F64_THREADS = 384, /* of a block: registers and columns for more there are not */
    GR_EXACT_INTEGERS = GR_EXACT_F64_THREADS, /* that warps leave: float64's one per lane */
    GR_EXACT_HEADER_WORDS = GR_EXACT_INTEGERS + 1 + GR_EXACT_WORDS, /* even */
    GR_EXACT_BINS = 16,          /* per thread, of float64: kernels/exact_bins.h */
    GR_EXACT_BF16_BINS = 64,     /* per thread, of float32 */
    GR_EXACT_COLUMN = 66,        /* per thread: kernels/exact_extract.h */
    GR_EXACT_BF16_THREADS = 512, /* of a block: its bins fill the shared memory */
    GR_EXACT_COUNT_BITS = 14,    /* of blocks, in each word: kernels/exact_deposits.h */
    GR_EXACT_BLOCKS = (1 << GR_EXACT_COUNT_BITS) - 1
};

/* Shared memory of a block, in words of 8 bytes. A row of bins is a power of two long. */
static inline size_t gr_exact_shared_words(gr_load load, unsigned block)
{
    size_t row = 32;
    while (row < block)
        row *= 2;
    switch (load) {
    case GR_LOAD_f16: return GR_EXACT_HEADER_WORDS;
    case GR_LOAD_bf16: return GR_EXACT_HEADER_WORDS + GR_EXACT_BF16_BINS / 2 * row;
    case GR_LOAD_f32: return GR_EXACT_HEADER_WORDS + GR_EXACT_BINS * row;
    default: return GR_EXACT_HEADER_WORDS + (size_t)GR_EXACT_COLUMN * block;
    }
}

#endif
