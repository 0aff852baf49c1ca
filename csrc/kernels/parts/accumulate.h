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

/* Sums of a few floats of two bytes, and of their squares. */
struct ShortMoments {
    double x, squares;

    ShortMoments() = default;

    __device__ __forceinline__ ShortMoments(double first) : x(first), squares(0) {}

    __device__ __forceinline__ void add(double more)
    {
        x += more;
        squares += __dmul_rn(more, more);
    }

    __device__ __forceinline__ ShortMoments &operator+=(const ShortMoments &more)
    {
        x += more.x;
        squares += more.squares;
        return *this;
    }
};

__device__ __forceinline__ ShortMoments __shfl_xor_sync(unsigned mask, ShortMoments value,
                                                        int lanes)
{
    value.x = __shfl_xor_sync(mask, value.x, lanes);
    value.squares = __shfl_xor_sync(mask, value.squares, lanes);
    return value;
}

/* The sums of x, and of x^2 or x y, of some floats. A product of float64 is added as its rounded
 * value and its error, which joins the errors of the additions. T: the type of the sum of x. */
template <typename T> struct Moments {
    Proven<T> x;
    Proven<gr_proven> products;

    Moments() = default;

    __device__ __forceinline__ Moments(double first) : x(first), products(0.0) {}

    __device__ __forceinline__ explicit Moments(const ShortMoments &few)
        : x(few.x), products(few.squares)
    {
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
typedef Moments<gr_proven3> type_moments3;

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

/* Adds x y. If the error of a small product may be no float64, adds 2^-1000 to `bound`.
 */
template <typename P>
__device__ __forceinline__ void add_product(Proven<P> &sum, double x, double y)
{
    double product = __dmul_rn(x, y), error = __fma_rn(x, y, -product);
    add_errors(&sum.of, error, gr_two_sum(&sum.of.sum, product));
    constexpr unsigned small = (1023 - 960) << 20;
    if (((unsigned)__double2hiint(product) & 0x7fffffff) < small && x != 0 && y != 0)
        sum.of.bound += 0x1p-1000;
}

template <typename T> __device__ __forceinline__ void add_square(Proven<gr_proven> &sum, T x)
{
    if constexpr (sizeof(T) == 8) {
        add_product(sum, x, x);
    } else { /* no bit of the square is lost */
        double wide = double(float(x));
        add_proven(&sum.of, __dmul_rn(wide, wide));
    }
}

template <typename P, typename T> __device__ __forceinline__ void add_to(Moments<P> &sum, T x)
{
    add_to(sum.x, x);
    add_square(sum.products, x);
}

template <typename P>
__device__ __forceinline__ void add_to(Moments<P> &sum, const Moments<P> &more)
{
    sum += more;
}

template <typename P>
__device__ __forceinline__ void add_to(Moments<P> &sum, const ShortMoments &few)
{
    add_proven(&sum.x.of, few.x);
    add_proven(&sum.products.of, few.squares);
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

/* The type that adds up a few elements: float64, if Acc proves its rounding and `Sizes` can tell
 * whether float64 sums of them are exact; otherwise Acc. */
template <typename Acc, typename T> using SizesFor = Sizes<T, is_moments<Acc>>;
template <typename Acc, typename T>
using ShortSum = std::conditional_t<!is_proven<Acc> || !SizesFor<Acc, T>::usable, Acc,
                                    std::conditional_t<is_moments<Acc>, ShortMoments, double>>;
template <typename Acc, typename Sum> constexpr bool is_short = is_proven<Acc> && !is_proven<Sum>;
/* Whether add_floats() adds several elements at once. */
template <typename Sum, typename T>
constexpr bool adds_floats = (std::is_same<Sum, type_moments>::value &&
                              std::is_same<T, float>::value);

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

template <typename Acc, typename Sum, typename T, bool of_squares>
__device__ __forceinline__ void add_short(Sum &sum, Sizes<T, of_squares> &sizes, T x)
{
    if constexpr (is_short<Acc, Sum>)
        sizes.take(x);
    add_short<Acc>(sum, x);
}

template <typename Acc, typename Sum, typename T, bool of_squares>
__device__ __forceinline__ void add_short(Sum &sum, Sizes<T, of_squares> &sizes,
                                          const Pack<T> &pack)
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

/* A float64 sum of a few numbers that begins at `start`, a number larger than any sum of them. Then
 * the error of each addition is a float64, and `rest` is the sum of the errors. */
struct SumFromStart {
    double start, sum = start, rest = 0;
    unsigned any = 0; /* the bits of the errors: 0 if there was no error */

    __device__ __forceinline__ void add(double x)
    {
        took(sum + x, x, 1);
    }

    __device__ __forceinline__ void add_square(double x)
    {
        took(__fma_rn(x, x, sum), x, x);
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

/* Adds a few floats, and their squares. */
template <unsigned count>
__device__ __forceinline__ void add_floats(Moments<gr_proven> &sum, const float (&x)[count])
{
    constexpr int log_count = count <= 1 ? 0 : count <= 2 ? 1 : count <= 4 ? 2 : count <= 8 ? 3 : 4;
    static_assert(count <= 1u << log_count, "the sums are less than the starts");
    float largest = 0;
    for (unsigned k = 0; k < count; k++)
        largest = fmaxf(largest, fabsf(x[k]));
    int top = (int)(__float_as_uint(largest) >> 23) - 126; /* all are less than 2^top */
    int of_x = 1023 + top + log_count + 1, of_squares = 1023 + 2 * top + log_count;
    SumFromStart elements = {__hiloint2double(of_x << 20 | 1 << 19, 0)};
    SumFromStart squares = {__hiloint2double(of_squares << 20, 0)};
    for (unsigned k = 0; k < count; k++) {
        elements.add(double(x[k]));
        squares.add_square(double(x[k]));
    }
    elements.put_into(&sum.x.of, count);
    squares.put_into(&sum.products.of, count);
}

/* Adds `count` packs or elements of type T. If their own sum is exact in float64, a sum that proves
 * its rounding adds this one number with its error, instead of each element. */
template <typename T, typename Acc, typename Piece, unsigned count>
__device__ __forceinline__ void add_pieces_to(Acc &sum, const Piece (&piece)[count])
{
    using Short = ShortSum<Acc, T>;
    SizesFor<Acc, T> sizes;
    if constexpr (adds_floats<Acc, T>) {
        float element[count * (sizeof(Piece) / sizeof(T))];
        memcpy(element, piece, sizeof element);
        add_floats(sum, element);
    } else if constexpr (is_short<Acc, Short>) {
        Short total = 0;
        UNROLLED
        for (unsigned k = 0; k < count; k++)
            add_short<Acc>(total, sizes, piece[k]);
        if (sizes.allow(count * unsigned(sizeof(Piece) / sizeof(T))))
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
template <typename Acc, typename Sum, typename T, bool of_squares, unsigned count>
__device__ __forceinline__ void add_short(Sum &sum, Sizes<T, of_squares> &sizes,
                                          const Pack<T> (&pack)[count])
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
