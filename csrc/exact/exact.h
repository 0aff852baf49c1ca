/* Correctly rounded sums of floating-point numbers. The result has the same bits in any order.
 *
 * Overview. A gr_exact is one wide fixed-point number. Its unit is the least subnormal float64,
 * 2^-1074, so every finite float16, bfloat16, float32 and float64 is a whole number of units.
 * Adding to it is integer addition: nothing is rounded, so neither the order nor the grouping of
 * the additions affects the result. Only the final sum is rounded, once, to the requested type.
 *
 *     gr_exact sum[2];
 *     gr_exact_sum_array(data, n, GR_LOAD_f32, 1, 0, sum);
 *     float value = gr_exact_f32(sum);
 *
 * To use it alone: cc -Icsrc yours.c csrc/exact/?*.c csrc/cpu/?*.c csrc/threads/?*.c -pthread -lm,
 * as tests/native/exact_core.c does.
 *
 * Special values. A nan, or +inf and -inf together, make the sum nan; infinities of one sign make
 * it that infinity. A finite sum is inf only if it rounds to inf: partial sums do not overflow. The
 * sum of no elements is +0, and so is a sum that cancels and a sum of nothing but -0. A nan result
 * is always the same quiet, positive nan.
 *
 * The result does not depend on the processor, on the number of threads, on the rounding mode or on
 * whether the processor flushes subnormals to zero. */
#pragma once

#include "shared/axes.h"
#include "shared/dtypes.h"
#include "shared/c_linkage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

GR_C_BEGIN

enum {
    /* The largest float64 is below 2^1024, that is 2^2098 units; 2^63 of them are below 2^2161. 68
     * digits of 32 bits hold 2^2176, the sign included, and leave 14 bits unused. */
    GR_EXACT_DIGITS = 68,
    GR_EXACT_UNIT = -1074, /* digit k counts 2^(32 k + GR_EXACT_UNIT) */

    GR_EXACT_NAN = 1, /* flags: special values that were added */
    GR_EXACT_PLUS_INF = 2,
    GR_EXACT_MINUS_INF = 4
};

/* The value is the sum of digit[k] 2^(32 k - 1074), whatever sign and size the digits have, unless
 * a flag is set. |digit[k]| <= fill 2^32, except for the last digit, which has no upper neighbour
 * to carry to. `count` is the number of elements. Only the array functions and gr_exact_merge
 * update it; callers of the other functions update it themselves. */
typedef struct {
    int64_t digit[GR_EXACT_DIGITS];
    uint64_t count;
    uint32_t flags;
    uint32_t fill;
} gr_exact;

/* Makes an empty accumulator: all bytes are zero. */
void gr_exact_init(gr_exact *acc);

/* --- arrays -------------------------------------------------------------------------------- */

/* Initializes out and adds n contiguous floats to it (any alignment; `load` is f16, bf16, f32 or
 * f64). With `components` 2 they are complex: n pairs, whose real parts are added to out[0] and
 * imaginary parts to out[1]. With 1, out[1] is not touched. Uses at most `threads` threads, or
 * gr_thread_count() if `threads` <= 0; arrays too small to gain from threads use one. */
void gr_exact_sum_array(const void *data, size_t n, gr_load load, int components, int threads,
                        gr_exact *out);

/* The same for elements with gaps between them, or in reverse byte order: all those of the reduced
 * dimensions, at least one. */
void gr_exact_sum_elements(gr_axes *axes, int threads, gr_exact *out);

/* The same as gr_exact_sum_array() without initialization: adds to the contents of acc. */
void gr_exact_add_array(gr_exact *acc, const void *data, size_t n, gr_load load, int components,
                        int threads);

/* --- deposits: partial sums of other code ---------------------------------------------------- */

/* Adds mantissa * 2^exponent. Returns false, and does nothing, unless -1074 <= exponent <= 1037.
 * Accumulated values up to 2^1101 in size are exact; larger ones, up to 2^1132, are recognized as
 * too large for any format. */
bool gr_exact_add_scaled(gr_exact *acc, int64_t mantissa, int exponent);

/* Adds one float64. Inf and nan set their flags. */
void gr_exact_add_f64(gr_exact *acc, double x);

/* Adds digits[i] * 2^(32 (first + i) - 1074), for any int64 values. Returns false, and does
 * nothing, unless first + n <= GR_EXACT_DIGITS. */
bool gr_exact_add_digits(gr_exact *acc, const int64_t *digits, size_t n, size_t first);

/* Changes the sign of the value. Flags stay. */
void gr_exact_negate(gr_exact *acc);

/* Adds the value, the count and the flags of `other`. acc and other may be the same. */
void gr_exact_merge(gr_exact *acc, const gr_exact *other);

/* --- values ---------------------------------------------------------------------------------- */

/* Converts digits and flags to the unique form for the value: digits 0 to 66 in 0..2^32-1, the last
 * signed; at most one flag, and all digits zero if a flag is set. The value and the count stay the
 * same. Two normalized accumulators of equal value and count have equal bytes. */
void gr_exact_normalize(gr_exact *acc);

/* Whether the value is zero. A nan is not zero. */
bool gr_exact_is_zero(const gr_exact *acc);

/* Rounds the value once, to nearest, ties to even. Returns the bits of an f16, bf16, f32 or f64. */
uint64_t gr_exact_round(const gr_exact *acc, gr_load target);

/* Splits a finite sum: each of the first three numbers is the nearest to what the numbers before it
 * leave. The fourth is more than half of what the first three leave. */
void gr_exact_split(const gr_exact *acc, double numbers[4]);

/* --- bytes ----------------------------------------------------------------------------------- */

enum { GR_EXACT_MOST_BYTES = 568 };

typedef enum {
    GR_EXACT_OK,
    GR_EXACT_BAD_LENGTH,
    GR_EXACT_BAD_MAGIC,
    GR_EXACT_BAD_VERSION,
    GR_EXACT_BAD_CHECKSUM,
    GR_EXACT_BAD_CONTENT /* a type, flags or digits that no accumulator has */
} gr_exact_error;

/* Writes one accumulator, or the two of a complex sum. Returns the number of bytes written, or 0 if
 * the value is too large, which no sum of up to 2^64 elements is. The bytes are the same on every
 * machine, and equal for equal type, count (of acc[0]) and values. */
size_t gr_exact_to_bytes(const gr_exact *acc, int components, gr_load load,
                         unsigned char bytes[GR_EXACT_MOST_BYTES]);

/* Reads accumulators back, normalized. Checks all input; on an error the outputs are unchanged. */
gr_exact_error gr_exact_from_bytes(const unsigned char *bytes, size_t size, gr_exact acc[2],
                                   int *components, gr_load *load);

const char *gr_exact_error_text(gr_exact_error error);

/* Whether the last digit of a normalized accumulator is one that 2^64 elements can reach. */
bool gr_exact_top_fits(const gr_exact *acc);

/* Whether `count` elements below 2^1024 can add up to this normalized sum. A larger sum is invalid:
 * if it is merged with itself repeatedly, its digits overflow before its count does. */
bool gr_exact_fits_count(const gr_exact *sum);

/* --- words: integers that anybody can add ------------------------------------------------------
 */

enum {
    GR_WORDS = 75,           /* of a real sum; gr_exact_words() also knows complex ones */
    GR_WORDS_MOST = 1 << 30, /* arrays of words that can be added */
};

typedef enum {
    GR_WORDS_OK,
    GR_WORDS_BAD_NUMBER, /* of no accumulators, or of too many */
    GR_WORDS_BAD_FORMAT, /* of accumulators of several types, or of no accumulators */
    GR_WORDS_BAD_CONTENT
} gr_words_error;

size_t gr_exact_words(int components);

/* Writes the words of one accumulator. Returns false if the value is too large, as
 * gr_exact_to_bytes() does. */
bool gr_exact_to_words(const gr_exact *acc, int components, gr_load load, int64_t *words);

/* The same of component 0 or 1 alone, without the words before all components. */
bool gr_exact_component_to_words(const gr_exact *acc, int component, int64_t *words);

/* Reads the sum of accumulators, normalized, from the sum of their words. Checks all input. */
gr_words_error gr_exact_from_words(const int64_t *words, int components, gr_exact acc[2],
                                   gr_load *load);

GR_C_END
