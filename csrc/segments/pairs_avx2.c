/* Splits four numbers at a time. The shifts by a variable yield 0 from 64 on, so a pair's words are
 * shifts of the significand, wherever it lies. */
#include "segments/pairs.h"

#ifdef __x86_64__

#include <immintrin.h>

#include <string.h>

__attribute__((target("avx2"))) void gr_split_avx2(const double *x, size_t n, gr_pair_window window,
                                                   gr_split *to)
{
    const __m256i one = _mm256_set1_epi64x((int64_t)1 << 52);
    const __m256i fraction = _mm256_set1_epi64x(((int64_t)1 << 52) - 1);
    const __m256i field = _mm256_set1_epi64x(0x7ff), zero = _mm256_setzero_si256();
    const __m256i low = _mm256_set1_epi64x(window.low), most = _mm256_set1_epi64x(window.most);
    const __m256i word = _mm256_set1_epi64x(64);
    const __m128i spare = _mm_cvtsi32_si128(window.spare);
    const bool has_high = gr_has_high_words(window);
    to->outliers = 0;
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        __m256i shift = _mm256_sub_epi64(_mm256_and_si256(_mm256_srli_epi64(bits, 52), field), low);
        __m256i wrong =
            _mm256_or_si256(_mm256_cmpgt_epi64(zero, shift), _mm256_cmpgt_epi64(shift, most));
        __m256i size = _mm256_or_si256(_mm256_and_si256(bits, fraction), one);
        size = _mm256_andnot_si256(wrong, _mm256_srl_epi64(size, spare));
        __m256i lower = _mm256_sllv_epi64(size, shift);
        __m256i sign = _mm256_cmpgt_epi64(zero, bits);
        if (has_high) {
            __m256i upper = _mm256_or_si256(_mm256_srlv_epi64(size, _mm256_sub_epi64(word, shift)),
                                            _mm256_sllv_epi64(size, _mm256_sub_epi64(shift, word)));
            /* The pair's negative is its complement plus one, which reaches the high word if the
             * low one is 0. */
            __m256i carry = _mm256_and_si256(sign, _mm256_cmpeq_epi64(lower, zero));
            upper = _mm256_sub_epi64(_mm256_xor_si256(upper, sign), carry);
            _mm256_storeu_si256((__m256i *)(void *)(to->high + i), upper);
        }
        lower = _mm256_sub_epi64(_mm256_xor_si256(lower, sign), sign);
        _mm256_storeu_si256((__m256i *)(void *)(to->low + i), lower);
        __m256i is_zero = _mm256_cmpeq_epi64(_mm256_add_epi64(bits, bits), zero);
        int found = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_andnot_si256(is_zero, wrong)));
        for (; found; found &= found - 1)
            to->outlier[to->outliers++] = (uint16_t)(i + (size_t)__builtin_ctz((unsigned)found));
    }
    for (; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        gr_split_one(bits, i, window, to);
    }
}

#endif
