/* Accumulators as arrays of 64-bit integers that anybody can add, word by word:
 *    0       2^31 * (components + 1) + 1: after additions, the low 31 bits have the number of
 *            accumulators
 *    1       the two bits of the element type's number less 1, as numbers of 31 bits: after
 *            additions, each is 0 or the number of accumulators, unless their types differ
 *    2, 3    the low and the high 32 bits of the count
 * and for each component
 *    0..2    1 if the accumulator has a nan, an inf, a -inf
 *    3..70   the digits, of which all but the last are from 0 to 2^32 - 1
 * The sum of GR_WORDS_MOST such arrays does not overflow.
 *
 * Before 1.0.0, words 0 and 1 were 1 and 256 + 16 * components + the element type's number. Sums of
 * such arrays are still read. If their types differ, that may go unnoticed. */
#pragma once

#include "exact/exact.h"
#include "exact/format.h"
#include "shared/host_device.h"

enum {
    GR_WORDS_HEAD = 4,
    GR_WORDS_FLAGS = 3,
    GR_WORDS_COMPONENT = GR_WORDS_FLAGS + GR_EXACT_DIGITS
};

/* Word 0 of one accumulator. */
GR_HOST_DEVICE int64_t gr_words_first(int components)
{
    return ((int64_t)(components + 1) << 31) + 1;
}

/* Word 1 of one accumulator. `type` is an element type's number. */
GR_HOST_DEVICE int64_t gr_words_type(int type)
{
    return ((type - 1) & 1) + ((int64_t)((type - 1) >> 1) << 31);
}

/* The number of accumulators that were added. */
static inline int64_t gr_words_added(const int64_t *words)
{
    return words[0] & INT32_MAX;
}

/* Writes the words before all components. */
GR_HOST_DEVICE void gr_write_words_head(int64_t *words, uint64_t count, int components,
                                        gr_load load)
{
    words[0] = gr_words_first(components);
    words[1] = gr_words_type(gr_type_number(load));
    words[2] = (int64_t)(count & UINT32_MAX);
    words[3] = (int64_t)(count >> 32);
}

/* The flags that a normalized accumulator has: at most one. */
GR_HOST_DEVICE uint32_t gr_normalized_flags(uint32_t flags)
{
    const uint32_t both = GR_EXACT_PLUS_INF | GR_EXACT_MINUS_INF;
    return flags & GR_EXACT_NAN || (flags & both) == both ? (uint32_t)GR_EXACT_NAN : flags;
}

/* Writes the flags of a component, whose words begin at `words`. */
GR_HOST_DEVICE void gr_write_words_flags(int64_t *words, uint32_t flags)
{
    for (int bit = 0; bit < GR_WORDS_FLAGS; bit++)
        words[bit] = flags >> bit & 1;
}
