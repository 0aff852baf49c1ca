/* Stores exact sums as words that anybody can add (exact/words.h), in place of rounded ones. */
#pragma once

#include "exact/words.h"

/* What the words before a sum's digits tell. `part` is the real or the imaginary one. */
struct DigitsHead {
    unsigned parts, part;
    gr_load type;
    uint64_t count;
};

/* Stores the words before the digits of a part, which is at `to` if it is the first part of its
 * sum. Returns where its digits go, of which all are 0 if a flag is set. */
__device__ __forceinline__ int64_t *store_head(void *to, const DigitsHead &head, unsigned flags)
{
    int64_t *words = static_cast<int64_t *>(to);
    if (head.part == 0)
        gr_write_words_head(words, head.count, (int)head.parts, head.type);
    words += GR_WORDS_HEAD;
    gr_write_words_flags(words, gr_normalized_flags(flags));
    return words + GR_WORDS_FLAGS;
}
