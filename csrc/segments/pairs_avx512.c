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
    const bool has_high = gr_has_high_words(window);
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
        _mm512_storeu_si512(to->low + i, lower);
        if (has_high) {
            __m512i upper = _mm512_srav_epi64(size, _mm512_sub_epi64(word, shift));
            __mmask8 far = _mm512_cmpge_epu64_mask(shift, word);
            upper = _mm512_mask_sllv_epi64(upper, far, size, _mm512_sub_epi64(shift, word));
            _mm512_storeu_si512(to->high + i, upper);
        }
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

/* Adds the words of 128-bit integers. */
__attribute__((target("avx512f"))) static inline void add(__m512i *low, __m512i *high, __m512i l,
                                                          __m512i h)
{
    const __m512i minus_one = _mm512_set1_epi64(-1);
    *low = _mm512_add_epi64(*low, l);
    *high = _mm512_add_epi64(*high, h);
    *high = _mm512_mask_sub_epi64(*high, _mm512_cmplt_epu64_mask(*low, l), *high, minus_one);
}

/* As round_normal_pairs() in pairs.c. */
__attribute__((target("avx512f,avx512cd,avx512dq"))) size_t
gr_round_pairs_avx512(const gr_normal_pairs *from, size_t n, unsigned char *to)
{
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi64(1);
    const __m512i word = _mm512_set1_epi64(64), unit = _mm512_set1_epi64(from->unit + 1);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m512i low = _mm512_set1_epi64((int64_t)from->initial[0]);
        __m512i high = _mm512_set1_epi64((int64_t)from->initial[1]);
        const unsigned char *at = from->cells + (from->is_short ? 8 : 16) * i;
        for (int k = 0; k < from->copies; k++, at += from->copy_bytes) {
            if (from->is_short) {
                __m512i l = _mm512_loadu_si512(at);
                add(&low, &high, l, _mm512_srai_epi64(l, 63));
                continue;
            }
            __m512i a = _mm512_loadu_si512(at), b = _mm512_loadu_si512(at + 64);
            add(&low, &high, _mm512_permutex2var_epi64(a, even, b),
                _mm512_permutex2var_epi64(a, odd, b));
        }
        __mmask8 negative = _mm512_movepi64_mask(high);
        __mmask8 borrow = _mm512_test_epi64_mask(low, low);
        low = _mm512_mask_sub_epi64(low, negative, zero, low);
        high = _mm512_mask_sub_epi64(high, negative, zero, high);
        high = _mm512_mask_sub_epi64(high, negative & borrow, high, one);
        __mmask8 is_long = _mm512_test_epi64_mask(high, high);
        __m512i top = _mm512_mask_mov_epi64(low, is_long, high);
        __m512i rest = _mm512_maskz_mov_epi64(is_long, low);
        __m512i zeros = _mm512_lzcnt_epi64(top), left = _mm512_sllv_epi64(rest, zeros);
        __m512i bits = _mm512_or_si512(_mm512_sllv_epi64(top, zeros),
                                       _mm512_srlv_epi64(rest, _mm512_sub_epi64(word, zeros)));
        __m512i m = _mm512_or_si512(_mm512_srli_epi64(bits, 1), _mm512_and_si512(bits, one));
        m = _mm512_mask_or_epi64(m, _mm512_test_epi64_mask(left, left), m, one);
        __m512i exponent = _mm512_sub_epi64(unit, zeros);
        exponent = _mm512_mask_add_epi64(exponent, is_long, exponent, word);
        exponent = _mm512_maskz_mov_epi64(_mm512_test_epi64_mask(m, m), exponent);
        if (from->single) {
            __m512i all = _mm512_cvtepu32_epi64(_mm256_castps_si256(_mm512_cvtepi64_ps(m)));
            all = _mm512_add_epi64(all, _mm512_slli_epi64(exponent, 23));
            all = _mm512_mask_or_epi64(all, negative, all, _mm512_slli_epi64(one, 31));
            _mm256_storeu_si256((__m256i *)(void *)(to + 4 * i), _mm512_cvtepi64_epi32(all));
        } else {
            __m512i all = _mm512_castpd_si512(_mm512_cvtepi64_pd(m));
            all = _mm512_add_epi64(all, _mm512_slli_epi64(exponent, 52));
            all = _mm512_mask_or_epi64(all, negative, all, _mm512_slli_epi64(one, 63));
            _mm512_storeu_si512(to + 8 * i, all);
        }
    }
    return i;
}

#endif
