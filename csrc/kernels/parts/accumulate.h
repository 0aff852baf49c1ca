/* Adding elements to sums: to numbers, and to float64 numbers that prove the rounding of their sum
 * (exact/proven.h). */
#pragma once

#include "common.h"
#include "exact/proven.h"
#include "exact/round.h"
#include "sizes.h"

__device__ __forceinline__ void merge_proven(gr_proven *to, const gr_proven *more)
{
    gr_proven_merge(to, more);
}

__device__ __forceinline__ void merge_proven(gr_proven3 *to, const gr_proven3 *more)
{
    gr_proven3_merge(to, more);
}

__device__ __forceinline__ void add_proven(gr_proven *to, double x)
{
    gr_proven_add(to, x);
}

__device__ __forceinline__ void add_proven(gr_proven3 *to, double x)
{
    gr_proven3_add(to, x);
}

/* T: gr_proven, or gr_proven3. */
template <typename T> struct Proven {
    T of;

    Proven() = default;

    __device__ __forceinline__ Proven(double x) : of{}
    {
        of.sum = x;
    }

    __device__ __forceinline__ Proven &operator+=(const Proven &more)
    {
        merge_proven(&of, &more.of);
        return *this;
    }
};

/* The sums of up to GR_SHORT_F16 float16 numbers and of their squares: of x, and of high + low. All
 * additions are exact. Squares are multiples of 2^-48 below 2^32. `high` begins at 2^45, so it
 * stays below 2^46 and counts 2^-7. An error is at most 2^-8, so `low` stays within 2^5. */
struct ShortMoments {
    static constexpr double start = 0x1p45;
    double x, high, low;

    ShortMoments() = default;

    __device__ __forceinline__ ShortMoments(double first) : x(first), high(start), low(0) {}

    __device__ __forceinline__ void add(double more)
    {
        double next = __fma_rn(more, more, high);
        x += more;
        low += __fma_rn(more, more, high - next);
        high = next;
    }

    __device__ __forceinline__ ShortMoments &operator+=(const ShortMoments &more)
    {
        x += more.x;
        high += more.high - start;
        low += more.low;
        return *this;
    }
};

/* The sums of x, and of x^2 or x y, of some floats. A product of float64 is added as its rounded
 * value and its error, which joins the errors of the additions. */
template <typename T> struct Moments {
    Proven<T> x, products;

    Moments() = default;

    __device__ __forceinline__ Moments(double first) : x(first), products(0.0) {}

    __device__ __forceinline__ explicit Moments(const ShortMoments &few)
        : x(few.x), products(few.high - ShortMoments::start)
    {
        add_proven(&products.of, few.low);
    }

    __device__ __forceinline__ Moments &operator+=(const Moments &more)
    {
        x += more.x;
        products += more.products;
        return *this;
    }
};

typedef Proven<gr_proven> type_proven;
typedef Proven<gr_proven3> type_proven3;
typedef Moments<gr_proven> type_moments;

template <typename Acc> constexpr bool is_moments = false;
template <typename T> constexpr bool is_moments<Moments<T>> = true;
template <typename Acc> constexpr bool is_proven = is_moments<Acc>;
template <typename T> constexpr bool is_proven<Proven<T>> = true;

/* Applies `move` to each float64 of the sum. */
template <typename Sum, typename Move> __device__ __forceinline__ Sum by_parts(Sum value, Move move)
{
    constexpr unsigned count = sizeof(Sum) / sizeof(double);
    double part[count];
    memcpy(part, &value, sizeof part);
    for (unsigned i = 0; i < count; i++)
        part[i] = move(part[i]);
    memcpy(&value, part, sizeof part);
    return value;
}

#define GR_SHUFFLE_PARTS(name, type)                                                               \
    template <template <typename> class Sum, typename T>                                           \
    __device__ __forceinline__ Sum<T> name(unsigned mask, Sum<T> value, type lanes)                \
    {                                                                                              \
        return by_parts(value, [=](double part) { return name(mask, part, lanes); });              \
    }
GR_SHUFFLE_PARTS(__shfl_down_sync, unsigned)
GR_SHUFFLE_PARTS(__shfl_up_sync, unsigned)
GR_SHUFFLE_PARTS(__shfl_sync, int)
GR_SHUFFLE_PARTS(__shfl_xor_sync, int)
#undef GR_SHUFFLE_PARTS

__device__ __forceinline__ ShortMoments __shfl_xor_sync(unsigned mask, ShortMoments value,
                                                        int lanes)
{
    return by_parts(value, [=](double part) { return __shfl_xor_sync(mask, part, lanes); });
}

/* The packs that a thread loads before it adds. */
template <typename Acc> constexpr unsigned packs_in_flight = is_proven<Acc> ? 4 : 8;

/* The type that an element is converted to before it is added. */
template <typename Acc> struct Addend {
    using type = Acc;
};
template <typename T> struct Addend<Proven<T>> {
    using type = double;
};
template <typename T> struct Addend<Moments<T>> {
    using type = double;
};

template <typename Acc, typename T> __device__ __forceinline__ void add_to(Acc &sum, T x)
{
    sum += Acc(x);
}

template <typename P, typename T> __device__ __forceinline__ void add_to(Proven<P> &sum, T x)
{
    add_proven(&sum.of, double(float(x)));
}

template <typename P> __device__ __forceinline__ void add_to(Proven<P> &sum, double x)
{
    add_proven(&sum.of, x);
}

template <typename P> __device__ __forceinline__ void add_to(Proven<P> &sum, Proven<P> x)
{
    sum += x;
}

__device__ __forceinline__ void add_errors(gr_proven *to, double one, double other)
{
    one += other;
    to->rest += one;
    to->bound += gr_magnitude(one);
}

__device__ __forceinline__ void add_errors(gr_proven3 *to, double one, double other)
{
    gr_proven3_add_rest(to, one);
    gr_proven3_add_rest(to, other);
}

/* Adds x y. If the error of a small product of float64 may be no float64, adds 2^-1000 to `bound`.
 * Products of other floats are exact. */
template <typename P, typename T>
__device__ __forceinline__ void add_product(Proven<P> &sum, T x, T y)
{
    if constexpr (sizeof(T) < 8) {
        add_proven(&sum.of, __dmul_rn(double(float(x)), double(float(y))));
    } else {
        double product = __dmul_rn(x, y), error = __fma_rn(x, y, -product);
        add_errors(&sum.of, error, gr_two_sum(&sum.of.sum, product));
        constexpr unsigned small = (1023 - 960) << 20;
        if (((unsigned)__double2hiint(product) & 0x7fffffff) < small && x != 0 && y != 0)
            sum.of.bound += 0x1p-1000;
    }
}

template <typename P, typename T> __device__ __forceinline__ void add_to(Moments<P> &sum, T x)
{
    add_to(sum.x, x);
    add_product(sum.products, x, x);
}

__device__ __forceinline__ void add_to(type_moments &sum, const type_moments &more)
{
    sum += more;
}

__device__ __forceinline__ void add_to(type_moments &sum, const ShortMoments &few)
{
    add_proven(&sum.x.of, few.x);
    add_proven(&sum.products.of, few.high - ShortMoments::start);
    add_proven(&sum.products.of, few.low);
}

template <typename Acc, typename T>
__device__ __forceinline__ void add_pack_to(Acc &sum, const Pack<T> &pack)
{
    if constexpr (is_proven<Acc>) {
        T element[Pack<T>::count];
        memcpy(element, &pack, sizeof element);
        for (unsigned k = 0; k < Pack<T>::count; k++)
            add_to(sum, element[k]);
    } else
        sum += sum_of<Acc>(pack);
}

/* Whether add_floats() adds several elements at once. */
template <typename Sum, typename T>
constexpr bool adds_floats = is_moments<Sum> && !std::is_same<T, __half>::value;

/* The type that adds up a few elements: float64 numbers, if Acc proves its rounding and `Sizes` can
 * tell whether sums in these are exact; otherwise Acc. */
template <typename Acc, typename T>
using ShortSum = std::conditional_t<!is_proven<Acc> || adds_floats<Acc, T> || !Sizes<T>::usable,
                                    Acc, std::conditional_t<is_moments<Acc>, ShortMoments, double>>;
template <typename Acc, typename Sum> constexpr bool is_short = is_proven<Acc> && !is_proven<Sum>;

/* Adds an element to a sum. `sizes` tell in the end whether a short sum is exact. */
template <typename Acc, typename Sum, typename T>
__device__ __forceinline__ void add_short(Sum &sum, T x)
{
    if constexpr (!is_short<Acc, Sum>)
        add_to(sum, x);
    else if constexpr (is_moments<Acc>)
        sum.add(double(float(x)));
    else
        sum += double(float(x));
}

template <typename Acc, typename Sum, typename T>
__device__ __forceinline__ void add_short(Sum &sum, Sizes<T> &sizes, T x)
{
    if constexpr (is_short<Acc, Sum>)
        sizes.take(x);
    add_short<Acc>(sum, x);
}

template <typename Acc, typename Sum, typename T>
__device__ __forceinline__ void add_short(Sum &sum, Sizes<T> &sizes, const Pack<T> &pack)
{
    if constexpr (is_short<Acc, Sum>) {
        T element[Pack<T>::count];
        memcpy(element, &pack, sizeof element);
        sizes.take(pack);
        for (unsigned k = 0; k < Pack<T>::count; k++)
            add_short<Acc>(sum, element[k]);
    } else
        add_pack_to(sum, pack);
}

/* Calls use(value, k) for each of some values in registers. The loop is not unrolled, as `use` is
 * long. The values that are left move up: an index would keep them in local memory. */
template <typename T, unsigned count, typename Use>
__device__ __forceinline__ void each_in_turn(const T (&values)[count], Use use)
{
    T left[count];
    for (unsigned k = 0; k < count; k++)
        left[k] = values[k];
    MOSTLY_ONCE
    for (unsigned k = 0; k < count; k++) {
        use(left[0], k);
        UNROLLED
        for (unsigned j = 0; j + 1 < count; j++)
            left[j] = left[j + 1];
    }
}

/* A float64 sum of a few numbers that begins at `start`, 1.5 times a power of two, which is more
 * than twice any sum of them. Then the error of each addition is a float64, and `rest` is the sum
 * of the errors. Only the error of a product of float64 may be rounded: by 2^-106 of `start`, which
 * is far below the bound of put_into() times the number of additions. */
struct SumFromStart {
    double start, sum = start, rest = 0;
    unsigned any = 0; /* the bits of the errors: 0 if there was no error */

    static __device__ __forceinline__ SumFromStart from(int exponent)
    {
        return {__hiloint2double((1023 + exponent) << 20 | 1 << 19, 0)};
    }

    __device__ __forceinline__ void add(double x)
    {
        took(sum + x, x, 1);
    }

    __device__ __forceinline__ void add_product(double x, double y)
    {
        took(__fma_rn(x, y, sum), x, y);
    }

    __device__ __forceinline__ void took(double next, double x, double y)
    {
        double error = __fma_rn(x, y, sum - next);
        any |= (unsigned)(__double2hiint(error) | __double2loint(error));
        rest += error;
        sum = next;
    }

    /* Adds the sum to another one. An error is at most 2^-53 of `start`. */
    __device__ __forceinline__ void put_into(gr_proven *to, unsigned count) const
    {
        add_proven(to, sum - start);
        to->rest += rest;
        to->bound += any ? start * (count * 0x1p-53) : 0;
    }
};

/* Limits of 2^top for products of float64. */
enum { LEAST_TOP = -400, MOST_TOP = 450, TINY_PRODUCT = -960 };

/* Exponents of some floats: all are below 2^top; float64 numbers but 0 are at least 2^least. */
struct Exponents {
    int top, least;
};

template <typename T, unsigned count>
__device__ __forceinline__ Exponents exponents_of(const T (&x)[count])
{
    if constexpr (sizeof(T) == 8) {
        unsigned largest = 0, smallest = ~0u; /* minus 1: of a zero, the largest number */
        for (double one : x) {
            unsigned size = (unsigned)__double2hiint(one) & 0x7fffffff;
            size |= __double2loint(one) != 0;
            largest = size > largest ? size : largest;
            smallest = size - 1 < smallest ? size - 1 : smallest;
        }
        return {largest ? int(largest >> 20) - 1022 : LEAST_TOP, int(smallest >> 20) - 1023};
    }
    float largest = 0;
    for (T one : x)
        largest = fmaxf(largest, fabsf(float(one)));
    return {int(__float_as_uint(largest) >> 23) - 126, 0};
}

/* The exponent from which sums of `count` numbers below 2^top begin. */
template <unsigned count> __device__ __forceinline__ constexpr int start_of(int top)
{
    static_assert(count <= 16, "a sum is less than half of its start");
    return top + 1 + (count <= 1 ? 0 : count <= 2 ? 1 : count <= 4 ? 2 : count <= 8 ? 3 : 4);
}

template <typename T> __device__ __forceinline__ int within_limits(int top)
{
    if constexpr (sizeof(T) < 8)
        return top;
    return top < LEAST_TOP ? LEAST_TOP : top > MOST_TOP ? MOST_TOP : top;
}

template <typename T> __device__ __forceinline__ double wide(T x)
{
    if constexpr (sizeof(T) == 8)
        return x;
    else
        return double(float(x));
}

/* Adds a sum of products of floats with these exponents. */
template <typename T>
__device__ __forceinline__ void put_products(Proven<gr_proven> &sum, SumFromStart &few,
                                             unsigned count, Exponents x, Exponents y)
{
    if constexpr (sizeof(T) == 8) {
        if (x.least + y.least < TINY_PRODUCT)
            few.any = 1; /* an error may be 0 because it is below all float64 numbers */
        if (x.top > MOST_TOP || y.top > MOST_TOP)
            sum.of.bound = INFINITY;
    }
    few.put_into(&sum.of, count);
}

/* Adds a few floats, and their squares. */
template <typename T, unsigned count>
__device__ __forceinline__ void add_floats(type_moments &sum, const T (&x)[count])
{
    Exponents of_x = exponents_of(x);
    int top = within_limits<T>(of_x.top);
    SumFromStart elements = SumFromStart::from(start_of<count>(top));
    SumFromStart squares = SumFromStart::from(start_of<count>(2 * top));
    for (unsigned k = 0; k < count; k++) {
        elements.add(wide(x[k]));
        squares.add_product(wide(x[k]), wide(x[k]));
    }
    elements.put_into(&sum.x.of, count);
    put_products<T>(sum.products, squares, count, of_x, of_x);
}

/* The same if float64 sums of both are exact. */
template <typename T, unsigned count>
__device__ __forceinline__ void add_exactly(type_moments &sum, const T (&x)[count])
{
    double total = 0, squares = 0;
    for (unsigned k = 0; k < count; k++) {
        total += double(float(x[k]));
        squares = __fma_rn(double(float(x[k])), double(float(x[k])), squares);
    }
    add_proven(&sum.x.of, total);
    add_proven(&sum.products.of, squares);
}

/* Whether float64 sums of `count` elements, and of their squares, are exact. */
template <typename T, unsigned packs>
__device__ __forceinline__ bool are_squares_exact(const Pack<T> (&pack)[packs], unsigned count)
{
    if constexpr (std::is_same<T, __nv_bfloat16>::value) {
        Sizes<T> sizes;
        for (unsigned k = 0; k < packs; k++)
            sizes.take(pack[k]);
        return sizes.allow_squares(count);
    } else
        return false;
}

/* Adds `count` packs or elements of type T. If their own sum is exact in float64, a sum that proves
 * its rounding adds this one number with its error, instead of each element. */
template <typename T, typename Acc, typename Piece, unsigned count>
__device__ __forceinline__ void add_pieces_to(Acc &sum, const Piece (&piece)[count])
{
    using Short = ShortSum<Acc, T>;
    constexpr unsigned width = sizeof(Piece) / sizeof(T);
    Sizes<T> sizes;
    if constexpr (adds_floats<Acc, T> && sizeof(T) == 2 && width > 1) {
        T element[count * width];
        memcpy(element, piece, sizeof element);
        if (are_squares_exact(piece, count * width))
            return add_exactly(sum, element);
        each_in_turn(piece, [&](const Piece &one, unsigned) {
            T few[width];
            memcpy(few, &one, sizeof few);
            add_floats(sum, few);
        });
    } else if constexpr (adds_floats<Acc, T>) {
        T element[count * width];
        memcpy(element, piece, sizeof element);
        add_floats(sum, element);
    } else if constexpr (is_short<Acc, Short>) {
        Short total = 0;
        UNROLLED
        for (unsigned k = 0; k < count; k++)
            add_short<Acc>(total, sizes, piece[k]);
        if (sizes.allow(count * width))
            return add_to(sum, total);
        each_in_turn(piece, [&](const Piece &one, unsigned) { add_short<Acc>(sum, sizes, one); });
    } else
        for (unsigned k = 0; k < count; k++)
            add_short<Acc>(sum, sizes, piece[k]);
}

template <typename Acc, typename T, unsigned count>
__device__ __forceinline__ void add_packs_to(Acc &sum, const Pack<T> (&pack)[count])
{
    add_pieces_to<T>(sum, pack);
}

/* Adds packs to a sum that may be short. */
template <typename Acc, typename Sum, typename T, unsigned count>
__device__ __forceinline__ void add_short(Sum &sum, Sizes<T> &sizes, const Pack<T> (&pack)[count])
{
    if constexpr (adds_floats<Sum, T>)
        add_pieces_to<T>(sum, pack);
    else
        for (unsigned k = 0; k < count; k++)
            add_short<Acc>(sum, sizes, pack[k]);
}

/* Adds up each of four sums over groups of `lanes` lanes. In groups of at least four lanes, pairs
 * exchange sums: after two steps each lane has one left. The total of sum[k] is then in sum[0] of
 * the lanes for which this function returns k. In smaller groups, each lane gets all totals. */
template <typename Sum>
__device__ __forceinline__ unsigned exchange_sums(Sum (&sum)[4], unsigned lanes, unsigned member)
{
    unsigned mine = 0, offset = lanes / 2;
    if (lanes < 4) {
        for (unsigned k = 0; k < 4 && lanes == 2; k++)
            sum[k] += __shfl_xor_sync(0xffffffffu, sum[k], 1);
        return 0;
    }
    for (unsigned half = 2; half > 0; half /= 2, offset /= 2) {
        bool upper = member & offset;
        mine += upper ? half : 0;
        for (unsigned k = 0; k < half; k++) {
            Sum other = upper ? sum[k] : sum[k + half];
            sum[k] = upper ? sum[k + half] : sum[k];
            sum[k] += __shfl_xor_sync(0xffffffffu, other, offset);
        }
    }
    for (; offset > 0; offset /= 2)
        sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], offset);
    return mine;
}

/* The same as loose_ends() in common.h, for sums that add_to() adds to. */
template <typename Acc, typename In>
__device__ __forceinline__ Acc ends_of(In in, size_t n, const Packed<In> &packed, size_t id)
{
    Acc sum = 0;
    if (id < packed.head)
        add_to(sum, in[id]);
    if (id < packed.tail)
        add_to(sum, in[n - 1 - id]);
    return sum;
}
