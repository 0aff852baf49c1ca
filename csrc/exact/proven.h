/* Sums of floats in two or three float64 numbers that prove their own rounding.
 *
 * Knuth's TwoSum gives the rounding error of an addition as a float64, exactly. `sum` takes the
 * elements, and `rest` the errors of its additions. In gr_proven the additions to `rest` round, and
 * `bound` is the sum of the magnitudes added to it. In gr_proven3 a third number, `tail`, takes the
 * errors of the additions to `rest`, and `bound` belongs to `tail`.
 *
 * Lemma. Let the last number of k additions with rounding be the computed sum of r_1, r_2, ... Each
 * partial sum is at most sum|r_i| in size, so each addition is wrong by at most 2^-53 sum|r_i|. So
 * the real-number sum of all elements differs from the sum of the two or three numbers by at most
 * k 2^-53 sum|r_i|. `bound` itself is computed, with a relative error below k 2^-53. Hence the
 * difference is at most k 2^-52 bound, for k < 2^50.
 *
 * If that interval lies within the numbers that round to one float, this float is the correctly
 * rounded sum. It nearly always does: two numbers hold more than a hundred bits. Where it does not,
 * the caller adds up the elements again, in an accumulator. Inf and nan are never proven. */
#pragma once

#include "shared/host_device.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* For elements of at most 24 bits. */
typedef struct {
    double sum, rest, bound;
} gr_proven;

/* For float64 elements. The sum of a few is often halfway between two float64 numbers, which only a
 * third number can prove. */
typedef struct {
    double sum, rest, tail, bound;
} gr_proven3;

/* Adds x to *sum and returns the error of the addition. */
GR_HOST_DEVICE double gr_two_sum(double *sum, double x)
{
    double before = *sum, after = before + x, part = after - before;
    *sum = after;
    return (before - (after - part)) + (x - part);
}

/* |x|, without a branch: the signs of errors cannot be predicted. */
GR_HOST_DEVICE double gr_magnitude(double x)
{
#ifdef __CUDA_ARCH__
    return fabs(x);
#else
    return __builtin_fabs(x);
#endif
}

/* x y - product, by Dekker's parts of 26 bits. It is right if |product| is at least 2^-960. */
GR_HOST_DEVICE double gr_rest_of_product(double x, double y, double product)
{
    const double split = 0x1p27 + 1;
    double x_part = split * x, y_part = split * y;
    double x_high = x_part - (x_part - x), x_low = x - x_high;
    double y_high = y_part - (y_part - y), y_low = y - y_high;
    return ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low;
}

GR_HOST_DEVICE void gr_proven_add(gr_proven *to, double x)
{
    double error = gr_two_sum(&to->sum, x);
    to->rest += error;
    to->bound += gr_magnitude(error);
}

/* Makes three additions that round. */
GR_HOST_DEVICE void gr_proven_merge(gr_proven *to, const gr_proven *more)
{
    gr_proven_add(to, more->sum);
    to->rest += more->rest;
    to->bound += more->bound;
}

GR_HOST_DEVICE void gr_proven3_add_rest(gr_proven3 *to, double x)
{
    double error = gr_two_sum(&to->rest, x);
    to->tail += error;
    to->bound += gr_magnitude(error);
}

GR_HOST_DEVICE void gr_proven3_add(gr_proven3 *to, double x)
{
    gr_proven3_add_rest(to, gr_two_sum(&to->sum, x));
}

/* Makes three additions that round. */
GR_HOST_DEVICE void gr_proven3_merge(gr_proven3 *to, const gr_proven3 *more)
{
    gr_proven3_add(to, more->sum);
    gr_proven3_add_rest(to, more->rest);
    to->tail += more->tail;
    to->bound += more->bound;
}

/* 2^exponent, which must be the exponent of a normal number. */
GR_HOST_DEVICE double gr_power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* Rounds high + low + middle, known up to `error`, to a format whose normal numbers have `fraction`
 * bits after the leading one and whose numbers are multiples of 2^unit. `high` must be the float64
 * nearest to high + low. Stores the rounded sum and returns true if it is proven. A result that is
 * too large for the format stands for inf.
 *
 * The nearest number to `high` is the nearest to the sum if the sum is nearer to it than half of
 * the gap between numbers: a gap of 2^last above a power of two is half as wide below it. */
GR_HOST_DEVICE bool gr_proven_round(double high, double low, double tail, double error,
                                    int fraction, int unit, double *rounded)
{
    uint64_t bits;
    memcpy(&bits, &high, sizeof bits);
    int field = (int)(bits >> 52 & 0x7ff);
    bool is_known = tail == 0 && error == 0; /* the sum is high + low */
    if (field == 0x7ff)
        return false;
    *rounded = high;
    if (fraction == 52 && is_known)
        return true;
    if (field < 60) { /* below 2^-963: only float64 elements get there */
        *rounded = high + 0.0;
        return is_known && low == 0 && (fraction == 52 || high == 0);
    }
    int last = field - 1023 - fraction;
    last = last < unit ? unit : last;
    double gap = gr_power_of_two(last), half = gap / 2;
    if (fraction < 52) {
        const double middle = 6755399441055744.0; /* 1.5 2^52: sums with it are whole numbers */
        double scaled = high * gr_power_of_two(-last); /* at most 2^(fraction + 1) */
        *rounded = ((scaled + middle) - middle) * gap;
        if (*rounded == 0 && high < 0)
            *rounded = -0.0;
        if (is_known && low == 0)
            return true;
        if (*rounded == 0 && error + gr_magnitude(tail) > gr_magnitude(high) / 4)
            return false; /* the sign of zero is that of the sum */
    }
    memcpy(&bits, rounded, sizeof bits);
    double offset = (high - *rounded) + low, unknown = gr_magnitude(tail) + error;
    double most = half, far = 1 + 0x1p-50;
    if ((bits & 0xfffffffffffff) == 0 && gr_magnitude(high) >= gr_magnitude(*rounded)) {
        if (unknown * far >= half / 2) /* it may be below the power of two */
            return false;
        if ((offset < 0) != (high < 0))
            most = half / 2;
    }
    return (gr_magnitude(offset) + unknown) * far < most;
}

/* Rounds a sum. `additions`: k of the lemma, the most additions that may have rounded. */
GR_HOST_DEVICE bool gr_proven_finish(const gr_proven *of, double additions, int fraction, int unit,
                                     double *rounded)
{
    double high = of->sum, low = gr_two_sum(&high, of->rest);
    return gr_proven_round(high, low, 0, additions * 0x1p-52 * of->bound, fraction, unit, rounded);
}

GR_HOST_DEVICE bool gr_proven3_finish(const gr_proven3 *of, double additions, int fraction,
                                      int unit, double *rounded)
{
    double high = of->sum, low = of->rest, tail;
    low = gr_two_sum(&high, low);
    tail = gr_two_sum(&low, of->tail);
    double last = low;
    low = gr_two_sum(&high, last);
    return gr_proven_round(high, low, tail, additions * 0x1p-52 * of->bound, fraction, unit,
                           rounded);
}
