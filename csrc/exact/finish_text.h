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

INLINE approximate finish_one(const gr_finish_how *how, const gr_finish_planes *of, size_t i)
{
    doubles count = load_doubles(of->n + i);
    approximate n = exactly(count), below = n, squares;
    approximate above = total_of(of->first, how->first_count, of->stride, i);
    if (how->kind != GR_FINISH_RATIO)
        below = free_of(count, how->ddof);
    if (how->second_count)
        squares = total_of(of->second, how->second_count, of->stride, i);
    if (how->kind == GR_FINISH_RATIO) {
        below = how->second_count ? squares : below;
    } else if (how->kind == GR_FINISH_VARIANCE) {
        above = product_of(n, squares);
        int pieces = how->first_count / how->parts;
        for (int k = 0; k < how->parts; k++) {
            approximate sum = total_of(of->first + k * pieces, pieces, of->stride, i);
            above = sum_of(above, negative_of(product_of(sum, sum)));
        }
        above = zero_of_one(above, count);
        below = product_of(n, below);
    } else if (how->kind == GR_FINISH_DEVIATION) {
        approximate mean = exactly(load_doubles(of->mean + i));
        approximate twice = product_of(exactly((doubles){0} - 2), above);
        above = sum_of(squares, product_of(mean, sum_of(product_of(n, mean), twice)));
    }
    return quotient_of(above, below);
}

/* Quotients of sums that are single float64 numbers, as those of few float32 elements are: the
 * division rounds once. Returns false if some sum consists of more numbers. */
INLINE bool divide_plainly(const gr_finish_how *how, const gr_finish_planes *of, size_t i,
                           proven_lanes *value)
{
    approximate sum = approximate_of(of->first[0] + i, of->stride);
    lanes64 more = (lanes64)sum.low | (lanes64)sum.error;
    int64_t any = 0;
    for (int k = 0; k < WIDTH; k++)
        any |= more[k];
    if (any & INT64_MAX)
        return false;
    doubles n = load_doubles(of->n + i), quotient = sum.high / n, back = quotient * n;
    lanes64 is_whole =
        (lanes64)(back == sum.high) & (lanes64)(rest_of_product(quotient, n, back) == 0);
    *value = (proven_lanes){.sum = quotient};
    if (how->target != GR_LOAD_f64) /* needs a second rounding */
        value->bound = (doubles)((lanes64)(0x1p-53 * magnitude(quotient)) & ~is_whole);
    return true;
}

static void finish(const gr_finish_how *how, const gr_finish_planes *of, size_t count,
                   double *planes)
{
    bool is_mean = how->kind == GR_FINISH_RATIO && !how->root && how->first_count == 1 &&
                   how->second_count == 0;
    for (size_t i = 0; i < count; i += WIDTH) {
        proven_lanes stored;
        if (!is_mean || !divide_plainly(how, of, i, &stored)) {
            approximate value = finish_one(how, of, i);
            if (how->root)
                value = root_of(value);
            stored = (proven_lanes){value.high, value.low, {0}, value.error};
        }
        store_lanes(&stored, planes + i, GR_FINISH_BATCH);
    }
}
