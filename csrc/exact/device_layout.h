/* The layout of strategy `exact` in shared memory and of its results for the host. Shared by the
 * engine and the kernel. */
#pragma once

#include "exact/exact.h"

enum {
    GR_EXACT_WORDS = GR_EXACT_DIGITS + 1,     /* the digits, and the flags in the last word */
    GR_EXACT_F64_THREADS = 384,               /* per block: registers and shared memory limit it */
    GR_EXACT_INTEGERS = GR_EXACT_F64_THREADS, /* stored by warps: one per lane for float64 */
    GR_EXACT_HEADER_WORDS = GR_EXACT_INTEGERS + 1 + GR_EXACT_WORDS, /* even */
    GR_EXACT_BINS = 16,          /* float64 bins per thread: kernels/parts/exact_bins.h */
    GR_EXACT_BF16_BINS = 64,     /* float32 bins per thread */
    GR_EXACT_COLUMN = 66,        /* digits per thread: kernels/parts/exact_extract.h */
    GR_EXACT_BF16_THREADS = 512, /* per block: its bins fill the shared memory */
    GR_EXACT_COUNT_BITS = 14, /* of the block count in each word: kernels/parts/exact_deposits.h */
    GR_EXACT_BLOCKS = (1 << GR_EXACT_COUNT_BITS) - 1,
    GR_LEVELS_WORDS = GR_EXACT_DIGITS + 4, /* of an exact sum that several warps share */
    GR_LEVELS_ROOM = 1 << 15,              /* elements per lane: kernels/parts/exact_levels.h */
    GR_TERMS_SUMS = 5, /* of exact_terms.cu: x, products of three sizes, and imaginary parts; .. */
    GR_TERMS_ROOM = 5 << 10, /* .. and bytes for the integers of one result */
    GR_TERMS_THREADS = 256
};

/* Returns the shared memory of a block, in 8-byte words. The length of a row of bins is a power of
 * two. */
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
