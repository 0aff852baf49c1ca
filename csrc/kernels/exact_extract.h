/* float64: three bins in registers, and what does not fit them into integers in shared memory.
 *
 * A bin starts at 1.5 2^k. While it stays in [2^k, 2^(k+1)] its last place is worth u = 2^(k-52),
 * so next = bin + x;  x -= next - bin;  bin = next; adds to it the multiple of u nearest to x and
 * leaves the rest of x, at most u/2, to the next bin. exact/extract.h has the proof: all is exact
 * as long as |x| < 2^p with p + r + 1 <= k and the bin takes at most 2^r numbers. Here r = 10, and
 * the next bin's k is 42 less: together they hold any x < 2^(k-11) that is a multiple of 2^(k-136).
 *
 * k is a warp's own. It rises when a larger element comes: the bins are emptied and start again
 * higher up. What the last bin leaves of an element goes to the words at once, if that is rare.
 * Else, and of elements too large for any k, it is deposited as integers: thread t's digits are in
 * column t of shared memory. Where most elements leave something, a warp deposits integers for a
 * while without trying the bins, and then starts them anew. */
#ifndef GPUREDUCE_EXACT_EXTRACT_H
#define GPUREDUCE_EXACT_EXTRACT_H

#include "exact_deposits.h"

/* Digits of one thread. A deposit adds less than 2^53 to a digit, so after 2^9 of them the carries
 * are taken. 66: what the highest digit that an element reaches carries needs one more. */
struct Column {
    static constexpr unsigned digits = GR_EXACT_COLUMN, most = 1 << 9, unused = ~0u;
    long long *digit;
    unsigned held = unused; /* deposits since the carries were taken; unused: not even cleared */

    /* The column as it may be added to, or to others. */
    DEVICE_FUNCTION void tidy(long long *digit, bool is_used)
    {
        long long over = 0;
        for (unsigned k = 0; k < digits; k++) {
            long long sum = is_used ? digit[k * blockDim.x] + over : 0;
            over = sum >> 32;
            digit[k * blockDim.x] = k < digits - 1 ? sum & 0xffffffff : sum;
        }
    }

    __device__ __forceinline__ void make_room(unsigned count)
    {
        if (held > most - count) {
            tidy(digit, held != unused);
            held = 0;
        }
        held += count;
    }

    /* Adds a finite x; there is room. */
    __device__ __forceinline__ void add(double x)
    {
        unsigned upper = (unsigned)__double2hiint(x), field = upper >> 20 & 0x7ff;
        unsigned high = (upper & 0xfffff) | (field ? 1u << 20 : 0);
        unsigned position = field ? field - 1 : 0, shift = position % 32;
        unsigned long long size = (unsigned long long)high << 32 | (unsigned)__double2loint(x);
        long long negative = (int)upper >> 31; /* 0 or -1 */
        long long low = (unsigned)__double2loint(x) << shift;
        long long rest = (long long)(size >> (32 - shift));
        long long *at = digit + position / 32 * blockDim.x;
        at[0] += (low ^ negative) - negative;
        at[blockDim.x] += (rest ^ negative) - negative;
    }
};

template <> struct Deposit<double> {
    static constexpr unsigned most_threads = GR_EXACT_F64_THREADS, flight = 10, rounds = 0;
    static constexpr unsigned room = (1 << 10) / (2 * flight) * 2 * flight;
    static constexpr unsigned least_patience = 32, most_patience = 1 << 9;
    static constexpr unsigned few = 4; /* lanes */
    static constexpr unsigned first_word = 0, words = exact_digits;
    static constexpr int bins = 3, step = 42, headroom = 11;
    static constexpr int raised_by = 8, spare_binades = 4; /* at a time; for peaks to come */
    static constexpr unsigned infinity = 0x7ff00000; /* the upper word of inf, and nan's is more */
    Column column;
    double bin[bins];
    long long kept = 0; /* in lane 8 b: what bin b of the warp took before it was last emptied */
    int top;           /* the first bin's k; the same in all lanes of a warp, as are these three: */
    unsigned taken;    /* elements since the bins were empty */
    unsigned wild = 0; /* flights for which the bins are not tried */
    unsigned patience = least_patience;
    unsigned spare = 1 << 16; /* flights of which rests may still go to the words at once */
    unsigned flags = 0;

    __device__ __forceinline__ Deposit()
    {
        column.digit = deposit_memory<long long>() + threadIdx.x;
        start(headroom - 1023); /* whatever comes raises them */
    }

    static __device__ __forceinline__ int bin_exponent(int top, int b)
    {
        int k = top - b * step;
        return k < -1022 ? -1022 : k;
    }

    static __device__ __forceinline__ double middle(int k)
    {
        return __hiloint2double((k + 1023) << 20 | 1 << 19, 0);
    }

    __device__ __forceinline__ void start(int k)
    {
        top = k;
        taken = 0;
        for (int b = 0; b < bins; b++)
            bin[b] = middle(bin_exponent(top, b));
    }

    /* Takes what the warp's bins hold: bin b's sum is lane 8 b's. As bits, the floats of a binade
     * are consecutive integers. Each step adds up half as many numbers in half as many lanes. */
    __device__ __forceinline__ long long units() const
    {
        long long sum[4] = {0, 0, 0, 0};
        for (int b = 0; b < bins; b++)
            sum[b] =
                __double_as_longlong(bin[b]) - __double_as_longlong(middle(bin_exponent(top, b)));
        for (unsigned half = 2; half > 0; half /= 2) {
            bool is_upper = threadIdx.x & 8 * half;
            for (unsigned i = 0; i < half; i++) {
                long long given = is_upper ? sum[i] : sum[half + i];
                sum[i] = (is_upper ? sum[half + i] : sum[i]) +
                         __shfl_xor_sync(0xffffffffu, given, 8 * half);
            }
        }
        for (unsigned offset = 4; offset > 0; offset /= 2)
            sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], offset);
        return threadIdx.x % 8 == 0 ? sum[0] : 0;
    }

    static __device__ __forceinline__ unsigned position(int top, int b)
    {
        return (unsigned)(bin_exponent(top, b) - 52 - GR_EXACT_UNIT);
    }

    /* Empties the bins. A warp's 2^15 elements make less than 2^56; while it keeps no more than
     * 2^57, the integers of all warps are below 2^63. */
    __device__ __forceinline__ void restart(int next_top)
    {
        if (taken > 0)
            kept += units();
        bool is_large = (kept + (1ll << 57)) >> 58 != 0;
        if (next_top != top || __any_sync(0xffffffffu, is_large)) {
            if (threadIdx.x % 32 < 8 * bins) /* other lanes have kept nothing */
                add_integer(kept, position(top, (int)(threadIdx.x % 32 / 8)));
            kept = 0;
            __syncwarp(); /* nothing else would make the lanes wait for each other */
        }
        start(next_top);
    }

    static __device__ __forceinline__ unsigned upper(double x)
    {
        return (unsigned)__double2hiint(x) & 0x7fffffff;
    }

    /* An upper word from which on elements are too large for the bins. */
    static __device__ __forceinline__ unsigned limit(int top)
    {
        return (unsigned)(top - headroom + 1023) << 20;
    }

    /* Takes an inf or nan, and leaves 0 of it. */
    __device__ __forceinline__ double take_special(double x)
    {
        if (upper(x) < infinity)
            return x;
        flags |= special_flag(x);
        return 0;
    }

    __device__ __forceinline__ double extract(double x)
    {
        for (int b = 0; b < bins; b++) {
            double next = bin[b] + x;
            x -= next - bin[b];
            bin[b] = next;
        }
        return x;
    }

    /* Raises the bins, for a flight whose greatest upper word is `peak` in this lane, if they can
     * be, and takes the elements that they cannot be raised for. All lanes of the warp. */
    __device__ __forceinline__ void raise(unsigned peak, double (&x)[2 * flight])
    {
        for (unsigned offset = 16; offset > 0; offset /= 2) {
            unsigned other = __shfl_xor_sync(0xffffffffu, peak, offset);
            peak = peak > other ? peak : other;
        }
        /* In steps, so that the warps agree; rounded up. */
        int k = (int)(peak >> 20) + headroom + spare_binades + raised_by - 1;
        k = k / raised_by * raised_by - 1022;
        k = k < 1022 ? k : 1022;
        if (k > top)
            restart(k);
        if (peak < limit(top))
            return;
        column.make_room(2 * flight);
        for (unsigned j = 0; j < 2 * flight; j++) {
            x[j] = take_special(x[j]);
            if (upper(x[j]) >= limit(top)) {
                column.add(x[j]);
                x[j] = 0;
            }
        }
    }

    __device__ __forceinline__ void add_integers(const double (&x)[2 * flight])
    {
        column.make_room(2 * flight);
        for (unsigned j = 0; j < 2 * flight; j++)
            column.add(x[j]);
    }

    /* Adds a finite x to digits that others add to, too. */
    static __device__ __forceinline__ void add_number(double x)
    {
        unsigned field = upper(x) >> 20;
        long long fraction = __double_as_longlong(x) & 0xfffffffffffff;
        long long size = fraction | (long long)(field ? 1 : 0) << 52;
        add_integer(x < 0 ? -size : size, field ? field - 1 : 0);
    }

    /* By way of the column's memory, as registers cannot be counted through, and the code written
     * out would be long. */
    __device__ __forceinline__ void add_rare(const double (&x)[2 * flight])
    {
        unsigned which = 0;
        spare--;
        for (unsigned j = 0; j < 2 * flight; j++) {
            if (x[j] != 0)
                which |= 1u << j;
            column.digit[j * blockDim.x] = __double_as_longlong(x[j]);
        }
        MOSTLY_ONCE
        for (; which; which &= which - 1) {
            unsigned j = (unsigned)__ffs((int)which) - 1;
            add_number(__longlong_as_double(column.digit[j * blockDim.x]));
        }
    }

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned)
    {
        double x[2 * flight];
        unsigned peak = 0, left = 0;
        memcpy(x, pack, sizeof x);
        for (unsigned j = 0; j < 2 * flight; j++)
            peak = peak > upper(x[j]) ? peak : upper(x[j]);
        if (wild > 0) {
            wild--;
            if (peak >= infinity)
                for (unsigned j = 0; j < 2 * flight; j++)
                    x[j] = take_special(x[j]);
            add_integers(x);
            return;
        }
        if (__any_sync(0xffffffffu, peak >= limit(top)))
            raise(peak, x);
        for (unsigned j = 0; j < 2 * flight; j++) {
            x[j] = extract(x[j]);
            left |= upper(x[j]) | (unsigned)__double2loint(x[j]);
        }
        unsigned lanes = (unsigned)__popc(__ballot_sync(0xffffffffu, left != 0));
        if (left) {
            if (lanes <= few && spare > 0 && column.held == Column::unused)
                add_rare(x);
            else
                add_integers(x);
        }
        taken += 2 * flight;
        if (lanes > 8) {
            wild = patience;
            patience = patience < most_patience ? 2 * patience : patience;
            restart(headroom - 1023);
        } else {
            patience = least_patience;
            if (taken == room)
                restart(top);
        }
    }

    /* One of the two that an array may have outside the 16-byte boundaries. */
    __device__ __forceinline__ void add_loose(double x)
    {
        add_number(take_special(x));
    }

    __device__ __forceinline__ void leave()
    {
        unsigned lane = threadIdx.x % 32, i = threadIdx.x / 32 * bins + lane / 8;
        kept += units();
        if (lane % 8 == 0 && lane < 8 * bins) {
            gathering()->value[i] = kept;
            gathering()->position[i] = position(top, (int)lane / 8);
        }
        add_flags(flags);
        if (__syncthreads_or(column.held != Column::unused))
            gather_columns();
    }

    /* The warps do that by themselves. */
    __device__ __forceinline__ void clear() {}

    /* Lane 8 b + i takes bin b of warps i and i + 8. The bins are 42 apart: six digits. Mostly, all
     * warps' have the same units, and their integers can be added up as they are. */
    static __device__ __forceinline__ long long merge(unsigned &k)
    {
        const Gathering *all = gathering();
        unsigned lane = threadIdx.x, own = lane / 8 < bins ? lane / 8 : 0;
        unsigned integers = lane / 8 < bins ? blockDim.x / 32 * bins : 0;
        unsigned at[bins], position[2] = {0, 0};
        long long value[2] = {0, 0};
        for (unsigned j = 0; j < 2; j++) {
            unsigned i = own + (lane % 8 + 8 * j) * bins;
            if (i < integers) {
                value[j] = all->value[i];
                position[j] = all->position[i];
            }
        }
        for (unsigned b = 0; b < bins; b++)
            at[b] = all->position[b];
        bool same = (value[0] == 0 || position[0] == all->position[own]) &&
                    (value[1] == 0 || position[1] == all->position[own]);
        if (!__all_sync(0xffffffffu, same))
            return merge_apart(value, position, k);
        k = at[bins - 1] / 32 + lane;
        return digits_of_bins(eighth_total(value[0] + value[1]), 0, at, k);
    }

    /* The same of bins whose units are up to 2^24 apart, for which halves of the integers are added
     * up. Those further up go to the words, and so does a bin that is out of reach of the 32 digits
     * that the warp makes. */
    static __device__ __forceinline__ long long
    merge_apart(const long long (&value)[2], const unsigned (&position)[2], unsigned &k)
    {
        unsigned least = ~0u, lowest, at[bins];
        long long low = 0, high = 0;
        for (unsigned j = 0; j < 2; j++)
            if (value[j] != 0 && position[j] < least)
                least = position[j];
        least = least_among(least, 1, 4);
        lowest = least_among(least, 8, 16);
        for (unsigned j = 0; j < 2; j++) {
            if (value[j] == 0)
                continue;
            unsigned above = position[j] - least;
            if (above <= 24 && least - lowest < 512) {
                low += (value[j] & 0xffffffff) << above;
                high += (long long)((unsigned long long)(value[j] >> 32) << above);
            } else {
                add_integer(value[j], position[j]);
            }
        }
        for (unsigned b = 0; b < bins; b++)
            at[b] = __shfl_sync(0xffffffffu, least, 8 * b);
        k = lowest / 32 + threadIdx.x;
        return digits_of_bins(eighth_total(low), eighth_total(high), at, k);
    }

    /* Among lanes whose numbers differ in bits from `from` to `to`. */
    static __device__ __forceinline__ unsigned least_among(unsigned value, unsigned from,
                                                           unsigned to)
    {
        for (unsigned offset = from; offset <= to; offset *= 2) {
            unsigned other = __shfl_xor_sync(0xffffffffu, value, offset);
            value = value < other ? value : other;
        }
        return value;
    }

    /* The sum over eight lanes. */
    static __device__ __forceinline__ long long eighth_total(long long value)
    {
        for (unsigned offset = 4; offset > 0; offset /= 2)
            value += __shfl_xor_sync(0xffffffffu, value, offset);
        return value;
    }

    /* Digit k of low + 2^32 high in units of 2^(at[b] - 1074), in lane 8 b. */
    static __device__ __forceinline__ long long
    digits_of_bins(long long low, long long high, const unsigned (&at)[bins], unsigned k)
    {
        long long digit = 0;
        for (unsigned b = 0; b < bins; b++) {
            unsigned which = k - at[b] / 32;
            digit += digit_of(__shfl_sync(0xffffffffu, low, 8 * b), at[b] % 32, which);
            digit += digit_of(__shfl_sync(0xffffffffu, high, 8 * b), at[b] % 32, which - 1);
        }
        return digit;
    }

    /* Adds up the columns of all threads, low and high halves of the digits apart: lane l those of
     * digits l, l + 32 and l + 64 of its warp, in turns that keep the lanes in different banks. */
    __device__ __forceinline__ void gather_columns()
    {
        constexpr unsigned parts = (Column::digits + 31) / 32;
        long long *all = deposit_memory<long long>(), low[parts], high[parts];
        unsigned lane = threadIdx.x % 32;
        if (column.held == Column::unused)
            column.tidy(column.digit, false);
        __syncwarp();
        for (unsigned p = 0; p < parts; p++) {
            low[p] = high[p] = 0;
            for (unsigned i = 0; lane + 32 * p < Column::digits && i < 32; i++) {
                long long digit = all[(lane + 32 * p) * blockDim.x + (threadIdx.x ^ i)];
                low[p] += digit & 0xffffffff;
                high[p] += digit >> 32;
            }
        }
        __syncwarp();
        for (unsigned p = 0; p < parts; p++) {
            all[2 * p * blockDim.x + threadIdx.x] = low[p];
            all[(2 * p + 1) * blockDim.x + threadIdx.x] = high[p];
        }
        __syncthreads();
        for (unsigned k = threadIdx.x; k < Column::digits; k += blockDim.x) {
            const long long *half = all + k / 32 * 2 * blockDim.x + k % 32;
            long long sums[2] = {0, 0};
            for (unsigned warp = 0; warp < blockDim.x; warp += 32) {
                sums[0] += half[warp];
                sums[1] += half[warp + blockDim.x];
            }
            add_digit(k, sums[0]);
            add_digit(k + 1, sums[1]);
        }
    }
};

#endif
