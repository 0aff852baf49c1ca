/* As pairs_avx2.c, eight numbers at a time. */
#include "segments/pairs.h"

#ifdef __x86_64__

#include <immintrin.h>

#include <string.h>

__attribute__((target("avx512f"))) void gr_split_avx512(const double *x, size_t n,
                                                        gr_pair_window window, gr_split *to)
{
    const __m512i one = _mm512_set1_epi64((int64_t)1 << 52);
    const __m512i fraction = _mm512_set1_epi64(((int64_t)1 << 52) - 1);
    const __m512i field = _mm512_set1_epi64(0x7ff), zero = _mm512_setzero_si512();
    const __m512i low = _mm512_set1_epi64(window.low), most = _mm512_set1_epi64(window.most);
    const __m512i word = _mm512_set1_epi64(64);
    const __m128i spare = _mm_cvtsi32_si128(window.spare);
    to->outliers = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m512i bits = _mm512_loadu_si512(x + i);
        __m512i shift = _mm512_sub_epi64(_mm512_and_si512(_mm512_srli_epi64(bits, 52), field), low);
        __mmask8 fits = _mm512_cmple_epu64_mask(shift, most);
        __m512i size = _mm512_or_si512(_mm512_and_si512(bits, fraction), one);
        size = _mm512_maskz_srl_epi64(fits, size, spare);
        /* The significand with its sign. Right shifts by 64 and more keep the sign. */
        size = _mm512_mask_sub_epi64(size, _mm512_cmplt_epi64_mask(bits, zero), zero, size);
        __m512i lower = _mm512_sllv_epi64(size, shift);
        __m512i upper = _mm512_srav_epi64(size, _mm512_sub_epi64(word, shift));
        __mmask8 far = _mm512_cmpge_epu64_mask(shift, word);
        upper = _mm512_mask_sllv_epi64(upper, far, size, _mm512_sub_epi64(shift, word));
        _mm512_storeu_si512(to->low + i, lower);
        _mm512_storeu_si512(to->high + i, upper);
        __mmask8 found =
            _mm512_test_epi64_mask(bits, _mm512_set1_epi64(INT64_MAX)) & (__mmask8)~fits;
        for (unsigned left = found; left; left &= left - 1)
            to->outlier[to->outliers++] = (uint16_t)(i + (size_t)__builtin_ctz(left));
    }
    for (; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        gr_split_one(bits, i, window, to);
    }
}

#endif
