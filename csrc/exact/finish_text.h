/* The inner loop of finish.h; a part of proven_text.h. */
#include "exact/approximate_text.h"

INLINE approximate approximate_of(const double *planes, size_t stride)
{
    proven_lanes sum;
    load_lanes(&sum, planes, stride);
    doubles low = two_sum(&sum.sum, sum.rest), tail = two_sum(&low, sum.tail);
    return checked(sum.sum, low, magnitude(tail) + sum.bound);
}

INLINE approximate total_of(const double *const *planes, int count, size_t stride, size_t i)
{
    approximate total = approximate_of(planes[0] + i, stride);
    for (int k = 1; k < count; k++)
        total = sum_of(total, approximate_of(planes[k] + i, stride));
    return total;
}

INLINE doubles load_doubles(const double *from)
{
    doubles x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* a / by, of numbers `by` >= 0, with one division. */
INLINE approximate divided(approximate a, doubles by)
{
    doubles inverse = 1 / by, quotient = a.high * inverse, product = quotient * by;
    doubles low = a.high - product, lost = two_sum(&low, -rest_of_product(quotient, by, product));
    lost = magnitude(lost) + magnitude(two_sum(&low, a.low)) + a.error;
    doubles rest = low, error = 2 * lost * inverse; /* which may underflow to 0 */
    low *= inverse;
    lanes64 is_whole = (lanes64)(lost == 0) & (lanes64)(low * by == rest) &
                       (lanes64)(rest_of_product(low, by, rest) == 0);
    error += (doubles)((lanes64)(LOST * magnitude(quotient)) & ~is_whole);
    return checked(quotient, low, error);
}

/* n (n - ddof), or 0 if n - ddof is negative. The product is exact if the difference is. */
INLINE approximate degrees_of(doubles n, double ddof)
{
    lanes64 are_free = (lanes64)(n > ddof);
    doubles below = n, lost = two_sum(&below, (doubles){0} - ddof);
    below = (doubles)((lanes64)below & are_free);
    lost = (doubles)((lanes64)lost & are_free);
    doubles high = n * below, low = rest_of_product(n, below, high) + n * lost;
    return checked(high, low, (doubles)((lanes64)(LOST * high) & (lanes64)(lost != 0)));
}

INLINE approximate finish_one(const gr_finish_how *how, const gr_finish_planes *of, size_t i)
{
    doubles count = load_doubles(of->n + i);
    approximate n = {count, {0}, {0}}, below = n, squares;
    approximate above = total_of(of->first, how->first_count, of->stride, i);
    if (how->kind == GR_FINISH_RATIO && !how->second_count)
        return divided(above, count);
    if (how->second_count)
        squares = total_of(of->second, how->second_count, of->stride, i);
    if (how->kind == GR_FINISH_RATIO) {
        below = squares;
    } else if (how->kind == GR_FINISH_VARIANCE) {
        above = fine_product_of(n, squares);
        int pieces = how->first_count / how->parts;
        for (int k = 0; k < how->parts; k++) {
            approximate sum = total_of(of->first + k * pieces, pieces, of->stride, i);
            above = sum_of(above, negative_of(product_of(sum, sum)));
        }
        above = zero_of_one(above, count);
        below = degrees_of(count, how->ddof);
    } else if (how->kind == GR_FINISH_DEVIATION) {
        below = free_of(count, how->ddof);
        approximate mean = exactly(load_doubles(of->mean + i));
        approximate twice = product_of(exactly((doubles){0} - 2), above);
        above = sum_of(squares, product_of(mean, sum_of(product_of(n, mean), twice)));
    }
    return quotient_of(above, below);
}

/* Whether a result is 0 / 0 for too few elements: a nan, whatever the sums are. */
INLINE lanes64 is_of_too_few(const gr_finish_how *how, doubles n)
{
    double ddof = how->ddof < 1 ? how->ddof : 1;
    double most = how->kind == GR_FINISH_VARIANCE ? ddof : 0;
    return (lanes64)(n <= most) & (how->kind == GR_FINISH_DEVIATION ? 0 : -1);
}

static void finish(const gr_finish_how *how, const gr_finish_planes *of, size_t count,
                   double *planes)
{
    const doubles nan = __builtin_nan("") + (doubles){0};
    for (size_t i = 0; i < count; i += WIDTH) {
        approximate value =
            of->n ? finish_one(how, of, i) : approximate_of(of->first[0] + i, of->stride);
        if (how->root)
            value = root_of(value);
        if (of->n) {
            lanes64 none = is_of_too_few(how, load_doubles(of->n + i));
            value.high = choose(none, nan, value.high);
            value.error = choose(none, (doubles){0}, value.error);
        }
        proven_lanes stored = {value.high, value.low, {0}, value.error};
        store_lanes(&stored, planes + i, GR_FINISH_BATCH);
    }
}
