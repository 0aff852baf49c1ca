/* Exact sums of floats in registers, as integers of 42 bits.
 *
 * Level b holds a multiple of its unit 2^(unit + 42 (count - 1 - b)), in a float64 that begins as
 * 1.5 2^52 of these units. Adding x to level 0 rounds x to a multiple of that unit, and what is
 * left of x goes to the next level. At the last one nothing is left, since each element is a
 * multiple of 2^unit.
 *
 * Lemma. At most 2^41 units of a level are added for each element: at level 0 because the largest
 * finite number is smaller, further down because what is left is at most half of the unit above. So
 * the sums of `room` = 2^9 elements stay below 2^50 units, and each level stays within the binade
 * of float64 whose numbers are the multiples of the level's unit: nothing is rounded away. The bits
 * of such floats are consecutive integers.
 *
 * The unit of float64's level 0 is too large for 2^52 of them. That level takes 2^-128 x. It takes
 * something only of an x far above 2^-894, whose product is exact. */
#ifndef GPUREDUCE_KERNEL_EXACT_LEVELS_H
#define GPUREDUCE_KERNEL_EXACT_LEVELS_H

#include "exact/device_layout.h"
#include "exact_deposits.h"
#include "exact_digits.h"
#include "exact/round.h"
#include "layout.h"
#include "matrix.h"

/* T: float for elements that are multiples of 2^-149, below 2^128. Or double. */
template <typename T> struct Levels {
    static constexpr bool is_wide = std::is_same<T, double>::value;
    static constexpr int count = is_wide ? GR_LEVELS_F64 : GR_LEVELS_F32;
    static constexpr int unit = is_wide ? -1074 : -149, step = 42, half = step / 2, group = 5;
    static constexpr long long one = 1ll << step, low_half = (1ll << half) - 1;
    double bin[count];
    unsigned flags = 0;

    static __device__ __forceinline__ double start(int b)
    {
        int exponent = unit + step * (count - 1 - b) + 52 - (is_wide && b == 0 ? 128 : 0);
        return __hiloint2double((exponent + 1023) << 20 | 1 << 19, 0);
    }

    __device__ __forceinline__ Levels()
    {
        for (int b = 0; b < count; b++)
            bin[b] = start(b);
    }

    /* The part of x that level b takes. */
    __device__ __forceinline__ double take(int b, double x)
    {
        double next = bin[b] + x, taken = next - bin[b];
        bin[b] = next;
        return taken;
    }

    /* Whether a level before `end` takes something of x: at least half of its unit. */
    static __device__ __forceinline__ bool reaches(double x, int end)
    {
        unsigned magnitude = (unsigned)__double2hiint(x) & 0x7fffffff;
        int exponent = unit + step * (count - end) - 1;
        return end < count ? magnitude >= (unsigned)(exponent + 1023) << 20 : x != 0;
    }

    /* Adds several elements. Skips `group` levels at a time if they take nothing. */
    template <unsigned several> __device__ __forceinline__ void add(double (&x)[several])
    {
        for (unsigned j = 0; j < several; j++)
            if (((unsigned)__double2hiint(x[j]) & 0x7ff00000) == 0x7ff00000) {
                flags |= special_flag(x[j]);
                x[j] = 0;
            }
        for (unsigned j = 0; is_wide && j < several; j++) {
            double small = x[j] * 0x1p-128, taken = take(0, small);
            x[j] = taken == 0 ? x[j] : (small - taken) * 0x1p128;
        }
        UNROLLED
        for (int first = is_wide; first < count; first += group) {
            int end = first + group < count ? first + group : count;
            bool is_reached = false;
            for (unsigned j = 0; j < several; j++)
                is_reached |= reaches(x[j], end);
            if (!is_reached)
                continue;
            UNROLLED
            for (int b = first; b < first + group; b++)
                for (unsigned j = 0; b < end && j < several; j++)
                    x[j] -= take(b, x[j]);
        }
    }

    __device__ __forceinline__ void add(double x)
    {
        double one_of[1] = {x};
        add(one_of);
    }
};

/* The sum of many Levels. */
template <typename T> struct LevelSum {
    using Of = Levels<T>;
    long long level[Of::count], top = 0; /* in units of each level; `top` in 2^42 of level 0 */
    unsigned flags;

    LevelSum() = default;

    /* Of the lanes whose numbers differ by multiples of `apart`. */
    __device__ __forceinline__ LevelSum(const Of &of, unsigned apart) : flags(of.flags)
    {
        for (int b = 0; b < Of::count; b++)
            level[b] = __double_as_longlong(of.bin[b]) - __double_as_longlong(Of::start(b));
        for (unsigned offset = apart; offset < 32; offset *= 2) {
            for (int b = 0; b < Of::count; b++)
                level[b] += __shfl_xor_sync(0xffffffffu, level[b], (int)offset);
            flags |= __shfl_xor_sync(0xffffffffu, flags, (int)offset);
        }
    }

    /* Carries, so that each level but the top is at least 0, and below 2^42. */
    __device__ __forceinline__ void carry()
    {
        long long over = 0;
        UNROLLED
        for (int b = Of::count - 1; b >= 0; b--) {
            level[b] += over;
            over = level[b] >> Of::step;
            level[b] &= Of::one - 1;
        }
        top += over;
    }

    /* Adds it to GR_LEVELS_WORDS words in global memory: halves of levels, since 2^42 sums of
     * halves cannot overflow. */
    __device__ __forceinline__ void add_to_words(unsigned long long *word)
    {
        carry();
        for (int b = 0; b < Of::count; b++)
            if (level[b] != 0) {
                atomicAdd(&word[2 * b], (unsigned long long)(level[b] & Of::low_half));
                atomicAdd(&word[2 * b + 1], (unsigned long long)(level[b] >> Of::half));
            }
        if (top != 0)
            atomicAdd(&word[2 * Of::count], (unsigned long long)top);
        if (flags)
            atomicOr(&word[2 * Of::count + 1], (unsigned long long)flags);
    }

    __device__ __forceinline__ void read_words(const unsigned long long *word)
    {
        long long over = 0;
        UNROLLED
        for (int b = Of::count - 1; b >= 0; b--) {
            long long high = (long long)__ldcg(&word[2 * b + 1]);
            level[b] = over + (long long)__ldcg(&word[2 * b]) + ((high & Of::low_half) << Of::half);
            over = high >> Of::half;
        }
        top = over + (long long)__ldcg(&word[2 * Of::count]);
        flags = (unsigned)__ldcg(&word[2 * Of::count + 1]);
    }

    /* The bits of the sum, rounded once. Takes the first 63 bits, and whether there is more. */
    __device__ __forceinline__ unsigned long long rounded(gr_load type)
    {
        gr_format format = gr_format_of(type);
        if (flags)
            return gr_round_flags(flags, format);
        carry();
        bool negative = top < 0, more = false;
        if (negative) {
            for (int b = 0; b < Of::count; b++)
                level[b] = -level[b];
            top = -top;
            carry();
        }
        uint64_t m = (uint64_t)top;
        int exponent = Of::unit + Of::step * Of::count;
        UNROLLED
        for (int b = 0; b < Of::count; b++) {
            int free = 63 - gr_bit_length(m), taken = free < Of::step ? free : Of::step;
            int left = Of::step - taken;
            m = m << taken | (uint64_t)level[b] >> left;
            more |= (level[b] & ((1ll << left) - 1)) != 0;
            exponent -= taken;
        }
        return gr_round_bits(m | more, exponent, negative, format);
    }
};

/* Adds up every `step`-th term of a sum from `first` on: a few loads at a time if the terms lie at
 * equal distances. */
template <typename T>
__device__ __forceinline__ void add_terms(Levels<T> &sum, const gr_layout &of, const Place &place,
                                          size_t first, size_t step, size_t terms)
{
    constexpr unsigned flight = Levels<T>::is_wide ? 2 : 4;
    const gr_layout_dim *dim = of.dim + of.kept;
    const char *base = static_cast<const char *>(of.base) + place.in;
    bool is_plain = of.reduced == 1 && !of.mask && of.load == load_of<T>();
    int64_t apart = is_plain ? dim[0].in : 0;
    MOSTLY_ONCE
    for (size_t i = first; i < terms; i += is_plain ? flight * step : step) {
        double x[flight] = {};
        if (is_plain) {
            for (unsigned j = 0; j < flight; j++)
                if (i + j * step < terms)
                    x[j] = *reinterpret_cast<const T *>(base + int64_t(i + j * step) * apart);
        } else {
            Place at(dim, of.reduced, i);
            if (!of.mask || of.mask[place.mask + at.mask])
                x[0] = of_layout<double>(of, place.in + at.in);
        }
        sum.add(x);
    }
}

/* Stores the digits of a sum: those of the levels, from the lowest one on, then those of `top`. A
 * function of its own, which reads a copy in memory: others keep their sums in few registers. */
template <typename T>
DEVICE_FUNCTION void store_digits(void *to, const DigitsHead &head, LevelSum<T> &sum)
{
    using Of = Levels<T>;
    constexpr int position = Of::unit - GR_EXACT_UNIT;
    int64_t *digit = store_head(to, head, sum.flags);
    int k = 0, filled = position % 32;
    uint64_t bits = 0;
    sum.carry();
    for (; k < position / 32; k++)
        digit[k] = 0;
    for (int half = 2 * Of::count - 1; half >= 0; half--) {
        long long level = sum.flags ? 0 : sum.level[half / 2];
        bits |= (uint64_t)(half % 2 ? level & Of::low_half : level >> Of::half) << filled;
        filled += Of::half;
        if (filled >= 32) {
            digit[k++] = (int64_t)(bits & 0xffffffff);
            bits >>= 32;
            filled -= 32;
        }
    }
    long long rest = sum.flags ? 0 : sum.top;
    digit[k++] = (int64_t)((bits | (uint64_t)rest << filled) & 0xffffffff);
    rest >>= 32 - filled;
    for (; k < GR_EXACT_DIGITS - 1; k++, rest >>= 32)
        digit[k] = rest & 0xffffffff;
    digit[k] = rest;
}

/* Finds tasks of a warp, which are `apart` sums each, of which any has a bit. */
struct NextTask {
    const unsigned *bits; /* NULL: all have */
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

#endif
