/* Stores exact sums, unrounded, as 64-bit words that any program can add (exact/words.h). */
#pragma once

#include "exact/words.h"

/* The contents of the words before a sum's digits. `part`: 0 is the real part, 1 the imaginary. */
struct DigitsHead {
    unsigned parts, part;
    gr_load type;
    uint64_t count;
};

/* Stores the words before the digits of a part. The GR_WORDS_HEAD words at `to` are stored with the
 * sum's first part only. Returns where the digits go: all must be 0 if a flag is set. */
__device__ __forceinline__ int64_t *store_head(void *to, const DigitsHead &head, unsigned flags)
{
    int64_t *words = static_cast<int64_t *>(to);
    if (head.part == 0)
        gr_write_words_head(words, head.count, (int)head.parts, head.type);
    words += GR_WORDS_HEAD;
    gr_write_words_flags(words, gr_normalized_flags(flags));
    return words + GR_WORDS_FLAGS;
}
