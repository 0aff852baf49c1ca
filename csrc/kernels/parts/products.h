/* Sums of products of two arrays. */
#pragma once

#include "accumulate.h"

/* Adds a few floats below 2^top. */
template <typename T, unsigned count>
__device__ __forceinline__ void add_few(Proven<gr_proven> &sum, const T (&x)[count], int top)
{
    SumFromStart few = SumFromStart::from(start_of<count>(within_limits<T>(top)));
    for (unsigned k = 0; k < count; k++)
        few.add(wide(x[k]));
    few.put_into(&sum.of, count);
}

/* The sum high + low of up to 4,096 products of float16 numbers. Each product is a float32: a
 * multiple of 2^-48 below 2^32. `high` begins at 1.5 times 2^45, so it stays above 2^45 and below
 * 2^46, and counts 2^-7. An error is at most 2^-8, so all additions are exact. */
struct ShortProducts {
    static constexpr double start = 0x1.8p45;
    double high, low;

    ShortProducts() = default;

    __device__ __forceinline__ ShortProducts(double first) : high(start + first), low(0) {}

    __device__ __forceinline__ void add(__half x, __half y)
    {
        double product = double(__half2float(x) * __half2float(y)), next = high + product;
        low += product - (next - high);
        high = next;
    }

    __device__ __forceinline__ ShortProducts &operator+=(const ShortProducts &more)
    {
        high += more.high - start;
        low += more.low;
        return *this;
    }

    __device__ __forceinline__ explicit operator Proven<gr_proven>() const
    {
        Proven<gr_proven> sum = high - start;
        add_proven(&sum.of, low);
        return sum;
    }
};

__device__ __forceinline__ ShortProducts __shfl_xor_sync(unsigned mask, ShortProducts value,
                                                         int lanes)
{
    return by_parts(value, [=](double part) { return __shfl_xor_sync(mask, part, lanes); });
}

template <unsigned count>
__device__ __forceinline__ void add_products(ShortProducts &sum, const __half (&x)[count],
                                             const __half (&y)[count])
{
    for (unsigned k = 0; k < count; k++)
        sum.add(x[k], y[k]);
}

/* Adds the products of a few floats. */
template <typename T, unsigned count>
__device__ __forceinline__ void add_products(Proven<gr_proven> &sum, const T (&x)[count],
                                             const T (&y)[count], Exponents of_y)
{
    if constexpr (std::is_same<T, __half>::value) {
        ShortProducts few = 0;
        add_products(few, x, y);
        sum += Proven<gr_proven>(few);
        return;
    }
    Exponents of_x = exponents_of(x);
    int top = within_limits<T>(of_x.top) + within_limits<T>(of_y.top);
    SumFromStart few = SumFromStart::from(start_of<count>(top));
    for (unsigned k = 0; k < count; k++)
        few.add_product(wide(x[k]), wide(y[k]));
    put_products<T>(sum, few, count, of_x, of_y);
}

template <typename T, unsigned count>
__device__ __forceinline__ void add_products(Proven<gr_proven> &sum, const T (&x)[count],
                                             const T (&y)[count])
{
    add_products(sum, x, y, exponents_of(y));
}
