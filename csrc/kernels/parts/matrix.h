/* Arrays as rows and columns, and the places of their sums. */
#pragma once

#include "exact_levels.h"
#include "finish.h"

template <typename T> struct Matrix {
    gr_matrix of;

    __device__ __forceinline__ size_t batches() const
    {
        return of.outer * of.batches;
    }

    /* The number of rows in all batches. */
    __device__ __forceinline__ size_t rows() const
    {
        return batches() * of.rows;
    }

    __device__ __forceinline__ const T *row(size_t r) const
    {
        if ((of.outer | of.batches) == 1)
            return static_cast<const T *>(of.base) + (int64_t)r * of.row_step;
        return batch(r / of.rows) + (int64_t)(r % of.rows) * of.row_step;
    }

    __device__ __forceinline__ const T *batch(size_t b) const
    {
        const T *first = static_cast<const T *>(of.base);
        if (of.outer == 1)
            return first + (int64_t)b * of.batch_step;
        return first + (int64_t)(b / of.batches) * of.outer_step +
               (int64_t)(b % of.batches) * of.batch_step;
    }

    /* The elements of the other array, if products are added up. */
    __device__ __forceinline__ const T *factors(const T *elements) const
    {
        const char *bytes = reinterpret_cast<const char *>(elements);
        return reinterpret_cast<const T *>(bytes + of.factors);
    }

    /* The elements of a row. */
    __device__ __forceinline__ Strided<T> terms_of(size_t r) const
    {
        return {row(r), of.column_step};
    }

    /* The elements of a column. */
    __device__ __forceinline__ Strided<T> terms_of(size_t b, size_t column) const
    {
        return {batch(b) + (int64_t)column * of.column_step, of.row_step};
    }

    /* Whether each row begins at a 16-byte boundary and consists of whole packs. */
    __device__ __forceinline__ bool has_whole_packs() const
    {
        return gr_matrix_has_packs(&of, sizeof(T), Pack<T>::count);
    }
};

/* Stores a sum, converted to the type of the sums. Integers wrap around. */
template <typename T> __device__ __forceinline__ void store_sum(void *to, const gr_sums &of, T sum)
{
    switch (of.type) {
    case GR_LOAD_f16: *static_cast<__half *>(to) = __float2half(float(sum)); return;
    case GR_LOAD_bf16: *static_cast<__nv_bfloat16 *>(to) = __float2bfloat16(float(sum)); return;
    case GR_LOAD_f32: *static_cast<float *>(to) = float(sum); return;
    case GR_LOAD_f64: *static_cast<double *>(to) = double(sum); return;
    default:
        if constexpr (std::is_integral<T>::value) /* floats are never stored as integers */
            store_bits(to, (unsigned long long)sum, of.bytes);
    }
}

/* A sum in the type of the elements, rounded to nearest. */
template <typename T, typename Sum> __device__ __forceinline__ T converted(Sum sum)
{
    if constexpr (std::is_same<T, __half>::value)
        return __float2half(float(sum));
    else if constexpr (std::is_same<T, __nv_bfloat16>::value)
        return __float2bfloat16(float(sum));
    else
        return T(sum);
}

template <typename T> __device__ __forceinline__ constexpr int load_of()
{
    return std::is_same<T, __half>::value          ? GR_LOAD_f16
           : std::is_same<T, __nv_bfloat16>::value ? GR_LOAD_bf16
           : std::is_same<T, float>::value         ? GR_LOAD_f32
           : std::is_same<T, double>::value        ? GR_LOAD_f64
                                                   : -1;
}

/* The same as store_sum(). Sums mostly have the elements' type, In: that needs no switch. */
template <typename In, typename T>
__device__ __forceinline__ void store_usual(void *to, const gr_sums &of, T sum)
{
    if (of.type == load_of<In>())
        *static_cast<In *>(to) = converted<In>(sum);
    else
        store_sum(to, of, sum);
}

template <typename T> __device__ __forceinline__ T initial_of(const gr_sums &of, size_t k)
{
    /* An index would make the compiler copy the parameter to local memory, in each thread. */
    bool second = of.parts == 2 && k % 2;
    auto bits = second ? of.initial[1] : of.initial[0];
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename Acc>
__device__ __forceinline__ std::enable_if_t<!is_proven<Acc>> finish_sum(void *to, const gr_sums &of,
                                                                        size_t k, Acc sum)
{
    store_sum(to, of, Acc(sum + initial_of<Acc>(of, k)));
}

__device__ __forceinline__ bool finish_proven(const gr_proven &sum, const gr_sums &of, double *x)
{
    gr_format format = gr_format_of(of.type);
    return gr_proven_finish(&sum, of.additions, format.fraction, format.unit, x);
}

__device__ __forceinline__ bool finish_proven(const gr_proven3 &sum, const gr_sums &of, double *x)
{
    gr_format format = gr_format_of(of.type);
    return gr_proven3_finish(&sum, of.additions, format.fraction, format.unit, x);
}

/* What store_made() needs of the sums. */
struct Made {
    gr_made how;
    gr_made_numbers numbers;
    double additions;
    gr_load type;
    unsigned bytes;

    __device__ __forceinline__ explicit Made(const gr_sums &of)
        : how(of.made), numbers(of.numbers), additions(of.additions), type(of.type), bytes(of.bytes)
    {
    }
};

/* Stores the result of one sum or two, if its rounding is proven. Returns whether it is. This is no
 * part of the kernels, which would take more registers. */
template <typename First, typename Second>
DEVICE_FUNCTION bool store_made(void *to, Made of, First first, Second second, First imaginary)
{
    double rounded, k = of.additions;
    gr_sums target = {};
    target.type = of.type;
    if (!take_numbers(&of.how, of.numbers, to)) {
        store_bits(to, gr_round_flags(GR_EXACT_NAN, gr_format_of(of.type)), of.bytes);
        return true;
    }
    bool is_done = false;
    constexpr bool fine = std::is_same<First, gr_proven3>::value;
    if constexpr (!fine)
        is_done =
            of.type != GR_LOAD_f64 && imaginary.sum == 0 && imaginary.bound == 0 &&
            is_made_soon(of.how, estimate_of(first, k), estimate_of(second, k), of.type, &rounded);
    if (!is_done)
        is_done = finish_made<fine>(of.how, approximate_of(first, k), approximate_of(second, k),
                                    approximate_of(imaginary, k), of.type, &rounded);
    if (is_done)
        store_sum(to, target, rounded);
    return is_done;
}

/* The same for the sums of x and of products. */
template <typename T>
__device__ __forceinline__ bool store_moments(void *to, const gr_sums &of, const Moments<T> &sum)
{
    bool is_ratio = of.made.kind == GR_FINISH_RATIO;
    if (is_ratio && of.made.over != GR_OVER_WEIGHTS)
        return store_made<T, T>(to, Made(of), sum.products.of, T{}, T{});
    return store_made<T, T>(to, Made(of), is_ratio ? sum.products.of : sum.x.of,
                            is_ratio ? sum.x.of : sum.products.of, T{});
}

__device__ __forceinline__ bool store_proven(void *to, const gr_sums &of, size_t,
                                             const type_moments &sum)
{
    return store_moments(to, of, sum);
}

/* The same of complex numbers, for a variance. */
__device__ __forceinline__ bool
store_of_parts(void *to, const gr_sums &of, const type_moments &real, const type_moments &imaginary)
{
    Proven<gr_proven> products = real.products;
    products += imaginary.products;
    return store_made<gr_proven, gr_proven>(to, Made(of), real.x.of, products.of, imaginary.x.of);
}

/* The same for one sum. Few kernels without products make such results. */
template <typename T> DEVICE_FUNCTION bool store_made_of(void *to, const gr_sums &of, T sum)
{
    return store_made<T, T>(to, Made(of), sum, T{}, T{});
}

/* Stores the rounded sum if it is proven. Returns whether it is. */
template <typename T>
__device__ __forceinline__ bool store_proven(void *to, const gr_sums &of, size_t k, Proven<T> sum)
{
    double rounded;
    if (of.made.is_made)
        return store_made_of(to, of, sum.of);
    add_to(sum, initial_of<double>(of, k));
    bool is_done = finish_proven(sum.of, of, &rounded);
    if (is_done)
        store_sum(to, of, rounded);
    return is_done;
}

DEVICE_FUNCTION void put_zeros(unsigned *at, size_t first, size_t step, size_t end)
{
    for (size_t i = first; i < end; i += step)
        at[i] = 0;
}

/* Stores a partial sum, and its part of the zeros that later launches need. */
template <typename Acc>
__device__ __forceinline__ void put_partial(const gr_sums &of, size_t k, const Acc &sum)
{
    static_cast<Acc *>(of.base)[k] = sum;
    if (k < of.zero_count)
        put_zeros(of.zeros, k, of.zero_step, of.zero_count);
}

/* Leaves sum k to a later launch, which adds up the sums that are not proven. */
__device__ __forceinline__ void mark_unproven(const gr_sums &of, size_t k)
{
    if (atomicOr(&of.unproven[k / 32], 1u << k % 32) == 0)
        atomicExch(of.any_unproven, 1u); /* once for each word: all sums share this address */
}

template <typename Sum>
__device__ __forceinline__ std::enable_if_t<is_proven<Sum>> finish_sum(void *to, const gr_sums &of,
                                                                       size_t k, Sum sum)
{
    if (!store_proven(to, of, k, sum))
        mark_unproven(of, k);
}

/* sum / n, rounded to odd, from 1 / n: one of the two float64 numbers around sum / n is odd. */
DEVICE_FUNCTION double quotient_to_odd(double sum, double n, double inverse)
{
    double quotient = sum * inverse;
    /* One of the two, or exact. */
    quotient = __fma_rn(__fma_rn(-quotient, n, sum), inverse, quotient);
    double rest = __fma_rn(-quotient, n, sum);
    long long bits = __double_as_longlong(quotient);
    bool is_below = (rest < 0) != (quotient < 0); /* sum / n is nearer to 0 */
    return rest == 0 ? quotient : __longlong_as_double((bits - is_below) | 1);
}

/* Prepares a short sum, which is exact, or its mean for the conversion that rounds it to the type
 * of the sums. Returns false if the result needs a proof. */
__device__ __forceinline__ bool round_short(const gr_sums &of, double sum, double *rounded)
{
    bool finite = (__double2hiint(sum) & 0x7ff00000) != 0x7ff00000;
    if (of.is_partial || of.has_initial || !finite)
        return false;
    if (of.made.is_made) {
        bool is_mean = of.made.kind == GR_FINISH_RATIO && of.made.over == GR_OVER_COUNT;
        if (!is_mean || of.made.root || of.numbers.results || of.type == GR_LOAD_f64)
            return false;
        sum = quotient_to_odd(sum, of.made.n, of.made.inverse);
    }
    *rounded = sum;
    if (of.type == GR_LOAD_f16 || of.type == GR_LOAD_bf16)
        *rounded = rounded_to_odd(sum);
    return true;
}

/* The most terms of a sum that a thread adds up again; and of sums that a warp adds up together.
 */
enum { AGAIN_ALONE = 64, AGAIN_TOGETHER = 256 };

/* In place of terms: only a later launch adds up these sums again. */
struct NoTerms {
    template <typename Terms> __device__ __forceinline__ explicit NoTerms(const Terms &) {}
};

template <typename Acc, typename Terms>
constexpr bool adds_again = is_proven<Acc> && !is_moments<Acc> && can_add_again<Terms>;

template <typename Acc> struct Sums;

/* The same as Sums::is_put(). Not inlined, because hardly any short sum needs it. `out` must be a
 * parameter of the kernel, by __grid_constant__: then it needs no copy. */
template <typename Terms, typename Acc>
DEVICE_FUNCTION bool is_put_apart(const Sums<Acc> &out, size_t k, double sum)
{
    return out.template is_put<Terms>(out.place(k), k, Acc(sum));
}

/* The places of the sums. A sum is rounded to its type once, when it is stored. */
template <typename Acc> struct Sums {
    gr_sums of;

    __device__ __forceinline__ void *place(size_t k) const
    {
        return static_cast<char *>(of.base) + k * of.bytes;
    }

    /* Returns false if the sum is not proven and no later launch adds it up again. */
    template <typename Terms>
    __device__ __forceinline__ bool is_put(void *to, size_t k, Acc sum) const
    {
        if (of.is_partial) {
            put_partial(of, k, sum);
        } else if constexpr (adds_again<Acc, Terms>) {
            if (!store_proven(to, of, k, sum)) {
                if (!of.unproven)
                    return false;
                mark_unproven(of, k);
            }
        } else
            finish_sum(to, of, k, sum);
        return true;
    }

    /* Adds up the terms of sum k by one thread, and stores the sum. */
    template <typename Terms>
    __device__ __forceinline__ void put_again(void *to, size_t k, const Terms &terms) const
    {
        if constexpr (adds_again<Acc, Terms>)
            add_again(to, of.type, of.bytes, initial_again(k), terms, {0, 1, of.count}, 32);
    }

    /* The same for each bit j of `which`: for sum k + j apart, whose terms are terms(j). */
    template <typename Bits, typename Terms>
    __device__ __forceinline__ void put_again(Bits which, size_t k, size_t apart, Terms terms) const
    {
        MOSTLY_ONCE
        for (; which; which &= which - 1) {
            unsigned j = unsigned(__ffsll((long long)which)) - 1;
            put_again(place(k + j * apart), k + j * apart, terms(j));
        }
    }

    /* The same by all lanes of a warp, each with its own bits. terms_of(k) are the terms of sum k.
     * The warp adds up several sums at once if they are short. */
    template <typename TermsOf>
    __device__ __forceinline__ void put_again_by_warp(unsigned long long which, size_t k,
                                                      size_t apart, TermsOf terms_of) const
    {
        if constexpr (adds_again<Acc, decltype(terms_of(k))>) {
            unsigned lane = threadIdx.x % 32;
            if (of.count <= AGAIN_ALONE)
                return put_again(which, k, apart,
                                 [&](unsigned j) { return terms_of(k + j * apart); });
            MOSTLY_ONCE
            while (unsigned waiting = __ballot_sync(0xffffffffu, which != 0)) {
                bool are_several = of.count <= AGAIN_TOGETHER && (waiting & (waiting - 1));
                unsigned sums = are_several ? 4 : 1, left = waiting;
                for (unsigned i = 0; i < lane % sums; i++)
                    left &= left - 1;
                unsigned long long mine = k + size_t(__ffsll((long long)which) - 1) * apart;
                size_t number = __shfl_sync(0xffffffffu, mine, left ? __ffs((int)left) - 1 : 0);
                add_again(left ? place(number) : NULL, of.type, of.bytes,
                          lane < sums ? initial_again(number) : 0, terms_of(number),
                          {lane / sums, 32 / sums, left ? of.count : 0}, sums);
                if ((unsigned)__popc(waiting & ((1u << lane) - 1)) < sums)
                    which &= which - 1;
            }
        }
    }

    /* Stores sum k. If it is not proven, adds up its terms again, unless a later launch does. */
    template <typename Terms>
    __device__ __forceinline__ void put(size_t k, Acc sum, const Terms &terms) const
    {
        if (!is_put<Terms>(place(k), k, sum))
            put_again(place(k), k, terms);
    }

    __device__ __forceinline__ double initial_again(size_t k) const
    {
        return of.has_initial ? initial_of<double>(of, k) : 0;
    }

    /* The same for a sum in lane 0 of a warp, all of whose lanes call this function. */
    template <typename Terms>
    __device__ __forceinline__ void put_by_warp(size_t k, Acc sum, const Terms &terms) const
    {
        bool is_done = threadIdx.x % 32 > 0 || is_put<Terms>(place(k), k, sum);
        if constexpr (adds_again<Acc, Terms>)
            if (!__all_sync(0xffffffffu, is_done)) {
                unsigned lane = threadIdx.x % 32;
                add_again(place(k), of.type, of.bytes, lane ? 0 : initial_again(k), terms,
                          {lane, 32, of.count}, 1);
            }
    }

    /* The same for a sum in thread 0 of a block. A block barrier follows. */
    template <typename Terms>
    __device__ __forceinline__ void put_by_block(void *to, size_t k, Acc sum,
                                                 const Terms &terms) const
    {
        bool is_done = threadIdx.x > 0 || is_put<Terms>(to, k, sum);
        if constexpr (adds_again<Acc, Terms>) {
            if (__syncthreads_or(!is_done)) {
                double initial = threadIdx.x == 0 ? initial_again(k) : 0;
                add_again_by_block(to, of.type, of.bytes, initial, terms, of.count);
            }
        } else
            __syncthreads();
    }

    /* Stores a short sum, which is exact. Returns false if it needs a proof. */
    __device__ __forceinline__ bool put_exact(size_t k, double sum) const
    {
        double rounded;
        if (!round_short(of, sum, &rounded))
            return false;
        store_sum(static_cast<char *>(of.base) + k * of.bytes, of, rounded);
        return true;
    }

    /* The same as is_put(), for a sum that may be short. */
    template <typename Terms, typename Sum>
    __device__ __forceinline__ bool is_put_short(size_t k, Sum sum) const
    {
        if constexpr (is_short<Acc, Sum> && !is_moments<Acc>)
            return put_exact(k, sum) || is_put_apart<Terms>(*this, k, sum);
        else
            return is_put<Terms>(place(k), k, Acc(sum));
    }

    /* Rounds sum k to T, the elements' type. Returns false if the sums have another type, or if it
     * may need a proof. */
    template <typename T, typename Sum>
    __device__ __forceinline__ bool round_to(size_t k, Sum sum, T *rounded) const
    {
        double exact;
        if (of.is_partial || of.type != load_of<T>())
            return false;
        if constexpr (!is_short<Acc, Sum>)
            *rounded = converted<T>(Acc(sum) + initial_of<Acc>(of, k));
        else if (round_short(of, sum, &exact))
            *rounded = converted<T>(exact);
        else
            return false;
        return true;
    }

    /* Stores sum k if it has the usual type: that of the elements, T, or for integers that of the
     * accumulator. Returns false if it has another type or may need a proof. */
    template <typename T, typename Sum>
    __device__ __forceinline__ bool put_usual(size_t k, Sum sum) const
    {
        if constexpr (is_proven<Sum> || is_moments<Acc>)
            return false;
        else if constexpr (!std::is_integral<T>::value) {
            T rounded{};
            if (!round_to(k, sum, &rounded))
                return false;
            static_cast<T *>(of.base)[k] = rounded;
        } else if (of.is_native)
            static_cast<Acc *>(of.base)[k] = Acc(sum) + initial_of<Acc>(of, k);
        else
            return false;
        return true;
    }

    /* Stores up to a pack of neighbouring sums that have the elements' type, by one store. Returns
     * false if it does not: if sums have another type, may need a proof, or are not aligned. */
    template <typename T, typename Sum, unsigned count>
    __device__ __forceinline__ bool put_pack(size_t k, const Sum (&sum)[count]) const
    {
        if constexpr (is_proven<Sum> || is_moments<Acc> || std::is_integral<T>::value)
            return false;
        else
            return put_rounded<T>(k, sum);
    }

    template <typename T, typename Sum, unsigned count>
    __device__ __forceinline__ bool put_rounded(size_t k, const Sum (&sum)[count]) const
    {
        using Bits =
            std::conditional_t<count * sizeof(T) == 16, uint4,
                               std::conditional_t<count * sizeof(T) == 8, uint2, unsigned>>;
        T *to = static_cast<T *>(of.base) + k;
        T rounded[count];
        if ((uintptr_t)to % sizeof rounded != 0)
            return false;
        for (unsigned j = 0; j < count; j++)
            if (!round_to(k + j, sum[j], &rounded[j]))
                return false;
        static_assert(sizeof rounded == sizeof(Bits), "a store of 4, 8 or 16 bytes");
        Bits bits;
        memcpy(&bits, rounded, sizeof bits);
        *reinterpret_cast<Bits *>(to) = bits;
        return true;
    }

    /* Stores neighbouring sums of the accumulator's type, by wide stores if possible. Returns false
     * if they have another type. */
    template <typename Sum, unsigned count>
    __device__ __forceinline__ bool put_native(size_t k, const Sum (&sum)[count]) const
    {
        if constexpr (is_proven<Acc>) {
            return false;
        } else {
            constexpr unsigned most = 16 / sizeof(Acc), wide = most < count ? most : count;
            Acc *to = static_cast<Acc *>(of.base) + k;
            if (!of.is_native)
                return false;
            for (unsigned j = 0; j < count; j += wide) {
                Acc part[wide];
                for (unsigned i = 0; i < wide; i++)
                    part[i] = Acc(sum[j + i]) + initial_of<Acc>(of, k + j + i);
                if (sizeof part == 16 && (uintptr_t)to % 16 == 0) {
                    uint4 bits;
                    memcpy(&bits, part, sizeof part);
                    *reinterpret_cast<uint4 *>(to + j) = bits;
                } else
                    for (unsigned i = 0; i < wide; i++)
                        to[j + i] = part[i];
            }
            return true;
        }
    }
};

/* Not inlined, because hardly any sum needs it. */
template <typename Terms, typename In, typename Acc>
DEVICE_FUNCTION void put_any_rows_again(const Matrix<In> &in, const Sums<Acc> &out,
                                        unsigned long long which, size_t k, size_t apart)
{
    out.put_again_by_warp(which, k, apart, [&](size_t r) { return Terms(in.terms_of(r)); });
}

/* Sums::put_again_by_warp() of rows. */
template <typename Terms, typename In, typename Acc>
__device__ __forceinline__ void put_rows_again(const Matrix<In> &in, const Sums<Acc> &out,
                                               unsigned long long which, size_t k, size_t apart)
{
    if constexpr (adds_again<Acc, Terms>)
        if (__any_sync(0xffffffffu, which != 0))
            put_any_rows_again<Terms>(in, out, which, k, apart);
}
