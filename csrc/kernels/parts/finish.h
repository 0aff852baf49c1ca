/* Results that are made of sums which prove their rounding. The arithmetic is that of the code for
 * the processors, on one number instead of a vector. */
#pragma once

#include "accumulate.h"
#include "exact/finish.h"
#include "exact/format.h"

#include <math.h>

struct doubles;

/* A condition, which has all bits set or none; or the bits of a number. */
struct lanes64 {
    long long bits;
    __device__ __forceinline__ explicit operator doubles() const;
};

/* Products and additions are never contracted into fused multiply-adds. */
struct doubles {
    double value;
    __device__ __forceinline__ explicit operator lanes64() const
    {
        return {__double_as_longlong(value)};
    }
    __device__ __forceinline__ doubles &operator+=(const doubles &more)
    {
        value += more.value;
        return *this;
    }
    __device__ __forceinline__ doubles &operator-=(const doubles &more)
    {
        value -= more.value;
        return *this;
    }
};

__device__ __forceinline__ lanes64::operator doubles() const
{
    return {__longlong_as_double(bits)};
}

#define GR_BETWEEN(operation, result, expression)                                                  \
    __device__ __forceinline__ result operator operation(const doubles &a, const doubles &b)       \
    {                                                                                              \
        return {expression};                                                                       \
    }                                                                                              \
    __device__ __forceinline__ result operator operation(double a, const doubles &b)               \
    {                                                                                              \
        return doubles{a} operation b;                                                             \
    }                                                                                              \
    __device__ __forceinline__ result operator operation(const doubles &a, double b)               \
    {                                                                                              \
        return a operation doubles{b};                                                             \
    }
GR_BETWEEN(+, doubles, a.value + b.value)
GR_BETWEEN(-, doubles, a.value - b.value)
GR_BETWEEN(*, doubles, __dmul_rn(a.value, b.value))
GR_BETWEEN(/, doubles, a.value / b.value)
GR_BETWEEN(<, lanes64, -(long long)(a.value < b.value))
GR_BETWEEN(>, lanes64, -(long long)(a.value > b.value))
GR_BETWEEN(==, lanes64, -(long long)(a.value == b.value))
GR_BETWEEN(!=, lanes64, -(long long)(a.value != b.value))
#undef GR_BETWEEN

__device__ __forceinline__ doubles operator-(const doubles &a)
{
    return {-a.value};
}

__device__ __forceinline__ lanes64 operator&(const lanes64 &a, const lanes64 &b)
{
    return {a.bits & b.bits};
}

__device__ __forceinline__ lanes64 operator|(const lanes64 &a, const lanes64 &b)
{
    return {a.bits | b.bits};
}

__device__ __forceinline__ lanes64 operator+(const lanes64 &a, long long b)
{
    return {a.bits + b};
}

__device__ __forceinline__ lanes64 operator-(long long a, const lanes64 &b)
{
    return {a - b.bits};
}

__device__ __forceinline__ lanes64 operator~(const lanes64 &a)
{
    return {~a.bits};
}

__device__ __forceinline__ doubles two_sum(doubles *sum, doubles x)
{
    return {gr_two_sum(&sum->value, x.value)};
}

__device__ __forceinline__ doubles magnitude(doubles x)
{
    return {gr_magnitude(x.value)};
}

__device__ __forceinline__ doubles rest_of_product(doubles x, doubles y, doubles product)
{
    return {__fma_rn(x.value, y.value, -product.value)};
}

__device__ __forceinline__ doubles square_roots(doubles x)
{
    return {sqrt(x.value)};
}

#define INLINE __device__ __forceinline__
#include "exact/approximate_text.h"
#undef INLINE

/* `additions`: the number of additions that round (exact/proven.h). */
__device__ __forceinline__ approximate approximate_of(const gr_proven &sum, double additions)
{
    return checked({sum.sum}, {sum.rest}, {additions * 0x1p-52 * sum.bound});
}

__device__ __forceinline__ approximate approximate_of(const gr_proven3 &sum, double additions)
{
    doubles high = {sum.sum}, low = two_sum(&high, {sum.rest}), tail = two_sum(&low, {sum.tail});
    return checked(high, low, magnitude(tail) + additions * 0x1p-52 * sum.bound);
}

/* Sets n and the mean of the result that is stored at `to`. Returns false if the result is nan
 * because it has too few elements. */
__device__ __forceinline__ bool take_numbers(gr_made *made, const gr_made_numbers &of,
                                             const void *to)
{
    if (!of.results)
        return true;
    int64_t k = (static_cast<const char *>(to) - static_cast<const char *>(of.results)) / of.apart;
    if (of.means)
        made->mean = of.means[k];
    if (!of.counts && !of.offsets)
        return true;
    int64_t n = of.counts ? of.counts[k] : of.offsets[k + 1] - of.offsets[k];
    if (made->over == GR_OVER_COUNT)
        made->n = double(n);
    return n >= of.least;
}

/* Rounds to odd: if bits are lost, the last bit of the float is set. No tie between 16-bit floats
 * has that bit, so that rounding the float to 16 bits gives the sum, correctly rounded. */
__device__ __forceinline__ float rounded_to_odd(double sum)
{
    float part = __double2float_rz(sum);
    return __uint_as_float(__float_as_uint(part) | unsigned(double(part) != sum));
}

/* Rounds to a type of less than eight bytes. */
__device__ __forceinline__ float rounded_to(gr_load type, double x)
{
    switch (type) {
    case GR_LOAD_f16: return float(__float2half(rounded_to_odd(x)));
    case GR_LOAD_bf16: return float(__float2bfloat16(rounded_to_odd(x)));
    default: return float(x);
    }
}

/* A power of two that is at least 1 / |x|. */
__device__ __forceinline__ double above_inverse(double x)
{
    return __hiloint2double((2046 << 20) - (__double2hiint(x) & 0x7ff00000), 0);
}

/* A number that differs from `value` by at most `error`. */
struct Estimate {
    double value, error;
};

__device__ __forceinline__ Estimate estimate_of(const gr_proven &sum, double additions)
{
    double value = sum.sum + sum.rest, lost = sum.rest != 0 ? 0x1p-52 * gr_magnitude(value) : 0;
    return {value, additions * 0x1p-52 * sum.bound + lost};
}

__device__ __forceinline__ Estimate quotient_of(Estimate a, Estimate b)
{
    double value = a.value / b.value, rest = __fma_rn(-value, b.value, a.value);
    double error = a.error + gr_magnitude(rest) + gr_magnitude(value) * b.error;
    bool is_known = b.error <= 0x1p-40 * gr_magnitude(b.value);
    return {value, is_known ? 2 * error * above_inverse(b.value) : INFINITY};
}

/* n second - first^2 */
__device__ __forceinline__ Estimate variance_of(double n, Estimate first, Estimate second)
{
    double product = n * second.value, square = first.value * first.value, above = product - square;
    double lost = gr_magnitude(__fma_rn(n, second.value, -product)) +
                  gr_magnitude(__fma_rn(first.value, first.value, -square)) +
                  0x1p-52 * gr_magnitude(above);
    double error = n * second.error + (2 * gr_magnitude(first.value) + first.error) * first.error;
    return {above, error + lost};
}

/* The same as finish_made(), in plain float64 numbers, for types of less than eight bytes. This
 * nearly always proves the rounding, in a fifth of the instructions. */
__device__ __forceinline__ bool is_made_soon(const gr_made &how, Estimate first, Estimate second,
                                             gr_load type, double *rounded)
{
    bool is_variance = how.kind == GR_FINISH_VARIANCE;
    Estimate below = {how.n, 0};
    if (how.kind == GR_FINISH_DEVIATION || (is_variance && (how.n <= how.ddof || how.n == 1)))
        return false;
    if (is_variance) {
        first = variance_of(how.n, first, second);
        below.value *= how.n - how.ddof;
        below.error = 0x1p-51 * below.value;
    } else if (how.over == GR_OVER_WEIGHTS)
        below = second;
    Estimate result = how.over == GR_OVER_ONE && !is_variance ? first : quotient_of(first, below);
    if (how.root) {
        double root = sqrt(result.value), rest = __fma_rn(-root, root, result.value);
        result = {root, (result.error + gr_magnitude(rest)) * above_inverse(root)};
    }
    if (result.error != 0)
        result.error = result.error * (1 + 0x1p-20) + 0x1p-52 * gr_magnitude(result.value);
    float low = rounded_to(type, result.value - result.error + 0.0);
    float high = rounded_to(type, result.value + result.error + 0.0);
    *rounded = low;
    return __float_as_uint(low) == __float_as_uint(high) && result.error < INFINITY;
}

/* Rounds the result of one sum, or of two, to a type. `imaginary`: the sum of the imaginary parts,
 * for variances. Returns false if the rounding is not proven. `fine`: it is proven more often, in
 * more instructions. */
template <bool fine>
DEVICE_FUNCTION bool finish_made(const gr_made how, const approximate first,
                                 const approximate second, const approximate imaginary,
                                 gr_load type, double *rounded)
{
    gr_format format = gr_format_of(type);
    approximate n = exactly({how.n}), above = first, below = n;
    if (how.kind == GR_FINISH_VARIANCE) {
        approximate product = fine ? fine_product_of(n, second) : product_of(n, second);
        above = sum_of(product, negative_of(product_of(first, first)));
        if (imaginary.high.value != 0 || imaginary.error.value != 0)
            above = sum_of(above, negative_of(product_of(imaginary, imaginary)));
        above = zero_of_one(above, {how.n});
        below = product_of(n, free_of({how.n}, how.ddof));
    } else if (how.kind == GR_FINISH_DEVIATION) {
        approximate mean = exactly({how.mean}), twice = product_of(exactly({-2}), first);
        above = sum_of(second, product_of(mean, sum_of(product_of(n, mean), twice)));
        below = free_of({how.n}, how.ddof);
    } else if (how.over == GR_OVER_WEIGHTS) {
        below = second;
    }
    approximate value = quotient_of(above, below);
    if (how.root)
        value = root_of(value);
    double high = value.high.value + 0.0; /* -0, from 0 over a negative number, becomes 0 */
    return gr_proven_round(high, value.low.value, 0, value.error.value, format.fraction,
                           format.unit, rounded);
}
