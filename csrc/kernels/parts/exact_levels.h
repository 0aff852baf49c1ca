/* Exact sums of floats by lanes of a warp, in digits of 32 bits: digit k counts 2^(32 k - 1074).
 *
 * Level k of a sum takes a multiple of digit k's unit out of each element, by additions of float64.
 * Adding x to `start`, which is 1.5 2^52 units, rounds x to a multiple of the unit. What is left of
 * x goes to the next level down. The bits of such floats are consecutive integers, which add up.
 *
 * Lemma. If x is below 2^32 units of the topmost level, and a multiple of the lowest level's unit,
 * nothing is rounded away: at most 2^32 units go to a level, so x + start stays within the binade
 * of `start`, what is left is at most half of a unit, and at the lowest level nothing is left. So
 * 2^30 elements add up to at most 2^62.
 *
 * A thread has registers for a few levels. It first finds the bits that its elements span, and then
 * reads them once more for each `Levels::count` digits of the span, from the lowest ones on: mostly
 * once. Bits above and below these digits are cut off.
 *
 * The unit of the topmost digits is too large for 2^52 of them. Their levels take 2^-128 x. */
#pragma once

#include "exact/device_layout.h"
#include "exact_digits.h"
#include "exact_rounding.h"
#include "layout.h"

/* The bits that some numbers span: bit 0 counts 2^-1074. */
struct Span {
    int low = INT32_MAX, end = 0; /* none: low > end */
    unsigned flags = 0;           /* of infs and nans, which have no bits */

    /* x is a multiple of the unit in its last place times 2^spare. */
    __device__ __forceinline__ void take(double x, int spare)
    {
        int field = int((unsigned)__double2hiint(x) >> 20 & 0x7ff), last = field ? field - 1 : 0;
        if (field == 0x7ff) {
            flags |= special_flag(x);
        } else if (x != 0) {
            low = last + spare < low ? last + spare : low;
            end = last + 53 > end ? last + 53 : end;
        }
    }

    __device__ __forceinline__ int top() const
    {
        return (end - 1) / 32;
    }

    /* Unites the spans of all lanes of the warp, and the flags of lanes whose numbers differ
     * by multiples of `apart`. */
    __device__ __forceinline__ void unite(unsigned apart)
    {
        low = (int)smallest_in_warp((unsigned)low);
        end = (int)largest_in_warp((unsigned)end);
        if (__any_sync(0xffffffffu, flags != 0))
            for (unsigned offset = apart; offset < 32; offset *= 2)
                flags |= __shfl_xor_sync(0xffffffffu, flags, (int)offset);
    }
};

/* Every `step`-th term, from number `first` to below number `end`. */
struct Share {
    size_t first, step, end;
};

/* x without its bits below bit `end`. */
__device__ __forceinline__ double without_bits_below(double x, int end)
{
    int field = int((unsigned)__double2hiint(x) >> 20 & 0x7ff),
        drop = end - (field ? field - 1 : 0);
    long long bits = __double_as_longlong(x);
    return drop <= 0 ? x : drop > 52 ? 0 : __longlong_as_double(bits & (long long)(~0ull << drop));
}

/* Digits `first` to `first + used - 1` of a sum. */
struct Levels {
    static constexpr int count = 6, /* at most */
        topmost = 61,               /* of the digits that need no scaling */
        scale = 128;
    /* Sums of floats' bits, modulo 2^64. They include `turns` times the bits of `start`. */
    unsigned long long level[count] = {}, turns = 0;
    int first, used;
    bool cuts_above, cuts_below, scales;

    __device__ __forceinline__ Levels(const Span &span, int first)
        : first(first), used(span.top() - first + 1), cuts_above(used > count),
          cuts_below(span.low / 32 < first)
    {
        used = used < count ? used : count;
        scales = first + used - 1 > topmost;
    }

    __device__ __forceinline__ double start(int b) const
    {
        int field = 32 * (first + b) + 1 - (scales ? scale : 0); /* of 2^52 units */
        return __hiloint2double(field << 20 | 1 << 19, 0);
    }

    __device__ __forceinline__ void add(double x)
    {
        if (cuts_above)
            x -= without_bits_below(x, 32 * (first + count));
        if (cuts_below)
            x = without_bits_below(x, 32 * first);
        if (scales)
            x *= 0x1p-128;
        UNROLLED
        for (int b = count - 1; b >= 0; b--)
            if (b < used) {
                double sum = x + start(b);
                level[b] += (unsigned long long)__double_as_longlong(sum);
                x -= sum - start(b);
            }
        turns++;
    }

    /* Calls give(k, total) for each digit: the total over lanes whose numbers differ by multiples
     * of `apart`. If `is_special`, there were infs or nans, and totals are 0. */
    template <typename Give>
    __device__ __forceinline__ void each(unsigned apart, bool is_special, Give give) const
    {
        UNROLLED
        for (int b = 0; b < count; b++)
            if (b < used) {
                unsigned long long zero = (unsigned long long)__double_as_longlong(start(b));
                long long total = is_special ? 0 : (long long)(level[b] - turns * zero);
                for (unsigned offset = apart; offset < 32; offset *= 2)
                    total += __shfl_xor_sync(0xffffffffu, total, (int)offset);
                give(first + b, total);
            }
    }
};

/* Elements at equal distances. */
template <typename T> struct Strided {
    using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
    const T *first;
    int64_t step; /* in elements */

    /* The number of bits at the end of each element, as a float64, that are zero. */
    __device__ __forceinline__ int spare() const
    {
        return sizeof(T) < 8 ? 29 : 0;
    }

    /* Calls use(x) for the elements of `part`. */
    template <typename Use> __device__ __forceinline__ void each(const Share &part, Use use) const
    {
        constexpr unsigned flight = sizeof(T) == 8 ? 4 : 8;
        MOSTLY_ONCE
        for (size_t i = part.first; i < part.end; i += flight * part.step) {
            Wide x[flight] = {};
            for (unsigned j = 0; j < flight; j++)
                if (i + j * part.step < part.end)
                    x[j] = Wide(first[int64_t(i + j * part.step) * step]);
            for (unsigned j = 0; j < flight; j++)
                if (i + j * part.step < part.end)
                    use(double(x[j]));
        }
    }
};

/* Elements of any layout. */
struct Scattered {
    const gr_layout &of;
    const Place &place;

    __device__ __forceinline__ int spare() const
    {
        return of.load == GR_LOAD_f64 || !gr_is_float((gr_load)of.load) ? 0 : 29;
    }

    template <typename T> __device__ __forceinline__ Strided<T> strided() const
    {
        const char *first = static_cast<const char *>(of.base) + place.in;
        return {reinterpret_cast<const T *>(first), of.dim[of.kept].in / (int64_t)sizeof(T)};
    }

    template <typename Use> __device__ __forceinline__ void each(const Share &part, Use use) const
    {
        const gr_layout_dim *dim = of.dim + of.kept;
        bool is_strided = of.reduced == 1 && !of.mask;
        if (is_strided && of.load == GR_LOAD_f32 && dim[0].in % 4 == 0)
            return strided<float>().each(part, use);
        if (is_strided && of.load == GR_LOAD_f64 && dim[0].in % 8 == 0)
            return strided<double>().each(part, use);
        MOSTLY_ONCE
        for (size_t i = part.first; i < part.end; i += part.step) {
            Place at(dim, of.reduced, i);
            if (!of.mask || of.mask[place.mask + at.mask])
                use(of_layout<double>(of, place.in + at.in));
        }
    }
};

/* Calls give(k, total) for the digits of a part of some terms plus an initial number, from the
 * lowest digit that is not zero to the highest. With `apart` below 32, the whole warp calls this
 * function, and totals are over the lanes whose numbers differ by multiples of `apart`. With 32, a
 * single thread may call it. Returns the flags. */
template <typename Terms, typename Give>
__device__ __forceinline__ unsigned each_digit_of(const Terms &terms, const Share &part,
                                                  double initial, unsigned apart, Give give)
{
    Span span;
    terms.each(part, [&](double x) { span.take(x, terms.spare()); });
    span.take(initial, 0);
    if (apart < 32)
        span.unite(apart);
    MOSTLY_ONCE
    for (int first = span.low / 32; first <= span.top(); first += Levels::count) {
        Levels levels(span, first);
        terms.each(part, [&](double x) { levels.add(x); });
        levels.add(initial);
        levels.each(apart, span.flags != 0, give);
    }
    return span.flags;
}

/* Takes the digits of a sum. Adds them to words that warps share, stores them in the place of the
 * sum, or prepares the rounding of the sum. */
struct SumDigits {
    enum { FLAGS = GR_EXACT_DIGITS, COUNT, FIRST, END }; /* words after the digits */
    unsigned long long *shared;
    int64_t *stored;
    HighestDigits highest;
    long long carry = 0; /* to digit `next`, unless the sum is rounded */
    int next = 0;

    __device__ __forceinline__ SumDigits(unsigned long long *shared, int64_t *stored)
        : shared(shared), stored(stored)
    {
    }

    __device__ __forceinline__ void give_next(long long total)
    {
        long long value = total + carry,
                  digit = next + 1 < GR_EXACT_DIGITS ? value & 0xffffffff : value;
        carry = (value - digit) >> 32;
        if (!shared)
            stored[next] = digit;
        else if (digit)
            atomicAdd(&shared[next], (unsigned long long)digit);
        next++;
    }

    __device__ __forceinline__ void give(int k, long long total)
    {
        if (!shared && !stored)
            return highest.give(k, total);
        if (shared && next == 0) {
            atomicMax(&shared[FIRST], (unsigned long long)(GR_EXACT_DIGITS - k));
            next = k;
        }
        while (next < k)
            give_next(0);
        give_next(total);
    }

    /* Adds the carry to the words that warps share. Then digits may be given again, from the lowest
     * one on. */
    __device__ __forceinline__ void leave()
    {
        while (carry)
            give_next(0);
        atomicMax(&shared[END], (unsigned long long)next);
        next = 0;
    }

    /* Counts this warp. In the last of `shares` warps, takes the digits of all and returns true. */
    __device__ __forceinline__ bool joins(unsigned &flags, size_t shares)
    {
        const volatile unsigned long long *word = shared;
        if (flags)
            atomicOr(&shared[FLAGS], (unsigned long long)flags);
        __threadfence();
        if (atomicAdd(&shared[COUNT], 1ull) + 1 < shares)
            return false;
        __threadfence();
        shared = NULL;
        flags = (unsigned)word[FLAGS];
        int end = (int)word[END];
        MOSTLY_ONCE
        for (int k = GR_EXACT_DIGITS - (int)word[FIRST]; k < end; k++)
            give(k, (long long)word[k]);
        return true;
    }

    /* Stores the words before the digits, and the digits above the last one that was given. */
    __device__ __forceinline__ void finish(void *to, const DigitsHead &head, unsigned flags)
    {
        store_head(to, head, flags);
        if (flags) {
            next = 0;
            carry = 0;
        }
        while (next < GR_EXACT_DIGITS)
            give_next(0);
    }
};

template <typename Terms> constexpr bool can_add_again = false;
template <typename T>
constexpr bool can_add_again<Strided<T>> = !std::is_class<T>::value || sizeof(T) == 2;
template <> constexpr bool can_add_again<Scattered> = true;

/* Stores the exact sum of some terms, unless `to` is NULL: by a single thread if `apart` is 32, and
 * otherwise by the lanes of a warp whose numbers differ by multiples of it. Not inlined, because
 * hardly any sum needs it. */
template <typename Terms>
DEVICE_FUNCTION void add_again(void *to, gr_load type, unsigned bytes, double initial,
                               const Terms terms, const Share part, unsigned apart)
{
    HighestDigits highest;
    unsigned flags = each_digit_of(terms, part, initial, apart,
                                   [&](int k, long long total) { highest.give(k, total); });
    if (to && (apart == 32 || threadIdx.x % 32 < apart))
        store_bits(to, highest.rounded(flags, type), bytes);
}

/* The same by a block, whose shared memory has room for GR_LEVELS_WORDS words. */
template <typename Terms>
DEVICE_FUNCTION void add_again_by_block(void *to, gr_load type, unsigned bytes, double initial,
                                        const Terms terms, size_t count)
{
    unsigned long long *word = shared_array<unsigned long long>();
    bool stores = threadIdx.x % 32 == 0;
    for (unsigned k = threadIdx.x; k < GR_LEVELS_WORDS; k += blockDim.x)
        word[k] = 0;
    __syncthreads();
    constexpr size_t room = (size_t)1 << 30; /* elements whose digits fit into 62 bits */
    SumDigits digits(word, NULL);
    unsigned flags = 0;
    size_t begin = 0;
    do {
        Share mine = {begin + threadIdx.x, blockDim.x, count - begin < room ? count : begin + room};
        flags |= each_digit_of(terms, mine, begin ? 0 : initial, 1, [&](int k, long long total) {
            if (stores)
                digits.give(k, total);
        });
        if (stores)
            digits.leave();
    } while ((begin += room) < count);
    if (stores && digits.joins(flags, blockDim.x / 32))
        store_bits(to, digits.highest.rounded(flags, type), bytes);
    __syncthreads();
}

/* Finds a warp's tasks. A task is `apart` sums, of which at least one has its bit set. */
struct NextTask {
    const unsigned *bits; /* NULL: all are set */
    unsigned apart;
    size_t shares, tasks;

    /* Moves `task` on, in steps of `warps`. Lanes look at different tasks. Returns whether there is
     * one. */
    __device__ __forceinline__ bool find(size_t &task, size_t warps) const
    {
        for (; task < tasks; task += 32 * warps) {
            size_t mine = task + threadIdx.x % 32 * warps, k = mine / shares * apart;
            bool any = mine < tasks && (!bits || bits[k / 32] >> k % 32 << (32 - apart));
            unsigned found = __ballot_sync(0xffffffffu, any);
            if (found) {
                task += (__ffs((int)found) - 1) * warps;
                return true;
            }
        }
        return false;
    }
};
