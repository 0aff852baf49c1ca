/* Stores exact sums as words that anybody can add (exact/words.h), in place of rounded ones. */
#ifndef GPUREDUCE_KERNEL_EXACT_DIGITS_H
#define GPUREDUCE_KERNEL_EXACT_DIGITS_H

#include "exact/words.h"
#include "shared/matrix.h"

/* Stores the words before the digits of a part, which is at `to` if it is the first part of its
 * sum. Returns where its digits go, of which all are 0 if a flag is set. */
__device__ __forceinline__ int64_t *store_words_head(void *to, const gr_sums &of, unsigned part,
                                                     uint64_t count, unsigned flags)
{
    int64_t *words = static_cast<int64_t *>(to);
    if (part == 0)
        gr_write_words_head(words, count, (int)of.parts, of.type);
    words += GR_WORDS_HEAD;
    gr_write_words_flags(words, gr_normalized_flags(flags));
    return words + GR_WORDS_FLAGS;
}

#endif
