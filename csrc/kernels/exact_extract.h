/* float64: three bins in registers, and what does not fit them into integers in shared memory.
 *
 * A bin starts at 1.5 2^k. While it stays in [2^k, 2^(k+1)] its last place is worth u = 2^(k-52),
 * so next = bin + x;  x -= next - bin;  bin = next; adds to it the multiple of u nearest to x and
 * leaves the rest of x, at most u/2, to the next bin. exact/extract.h has the proof: all is exact
 * as long as |x| < 2^p with p + r + 1 <= k and the bin takes at most 2^r numbers. Here r = 10, and
 * the next bin's k is 42 less: together they hold any x < 2^(k-11) that is a multiple of 2^(k-136).
 *
 * k is a warp's own. It rises when a larger element comes: the bins are emptied and start again
 * higher up. Elements too large for any k, and what the last bin leaves, are deposited as integers:
 * thread t's digits are in column t of shared memory. Where most elements leave something, a warp
 * deposits integers for a while without trying the bins, and then starts them anew. */
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
    static constexpr unsigned flight = 8, room = 1 << 10, rounds = ~0u;
    static constexpr unsigned least_patience = 32, most_patience = 1 << 9;
    static constexpr int bins = 3, step = 42, headroom = 11;
    static constexpr unsigned infinity = 0x7ff00000; /* the upper word of inf, and nan's is more */
    Column column;
    double bin[bins];
    long long kept = 0; /* in lane b: what bin b of the warp took before it was last emptied */
    int top;           /* the first bin's k; the same in all lanes of a warp, as are these three: */
    unsigned taken;    /* elements since the bins were empty */
    unsigned wild = 0; /* flights for which the bins are not tried */
    unsigned patience = least_patience;
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

    /* Takes what the warp's bins hold: the sum for lane b is bin b's. As bits, the floats of a
     * binade are consecutive integers. */
    __device__ __forceinline__ long long units() const
    {
        long long sum = 0;
        for (int b = 0; b < bins; b++) {
            long long from = __double_as_longlong(middle(bin_exponent(top, b)));
            long long total = warp_total(__double_as_longlong(bin[b]) - from);
            sum = (int)(threadIdx.x % 32) == b ? total : sum;
        }
        return sum;
    }

    static __device__ __forceinline__ unsigned position(int top, int b)
    {
        return (unsigned)(bin_exponent(top, b) - 52 - GR_EXACT_UNIT);
    }

    /* Empties the bins. A warp's 2^15 elements make less than 2^56; while it keeps no more than
     * 2^57, 32 warps' integers are 2^63. */
    __device__ __forceinline__ void restart(unsigned long long *sum, int next_top)
    {
        if (taken > 0)
            kept += units();
        bool is_large = (kept + (1ll << 57)) >> 58 != 0;
        if (next_top != top || __any_sync(0xffffffffu, is_large)) {
            if (threadIdx.x % 32 < bins)
                add_integer(sum, kept, position(top, (int)(threadIdx.x % 32)));
            kept = 0;
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
    __device__ __forceinline__ void raise(unsigned peak, double (&x)[2 * flight],
                                          unsigned long long *sum)
    {
        for (unsigned offset = 16; offset > 0; offset /= 2) {
            unsigned other = __shfl_xor_sync(0xffffffffu, peak, offset);
            peak = peak > other ? peak : other;
        }
        /* In steps of 16, so that the warps agree, and the next peak a little higher fits. */
        int k = ((int)(peak >> 20) + headroom + 15) / 16 * 16 - 1022;
        k = k < 1022 ? k : 1022;
        if (k > top)
            restart(sum, k);
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

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned,
                                        unsigned long long *sum)
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
            raise(peak, x, sum);
        for (unsigned j = 0; j < 2 * flight; j++) {
            x[j] = extract(x[j]);
            left |= upper(x[j]) | (unsigned)__double2loint(x[j]);
        }
        if (left)
            add_integers(x);
        taken += 2 * flight;
        if (__popc(__ballot_sync(0xffffffffu, left != 0)) > 8) {
            wild = patience;
            patience = patience < most_patience ? 2 * patience : patience;
            restart(sum, headroom - 1023);
        } else {
            patience = least_patience;
            if (taken == room)
                restart(sum, top);
        }
    }

    /* One of the two that an array may have outside the 16-byte boundaries: not worth a column. */
    __device__ __forceinline__ void add_loose(double x)
    {
        x = take_special(x);
        unsigned field = upper(x) >> 20, position = field ? field - 1 : 0;
        long long fraction = __double_as_longlong(x) & 0xfffffffffffff;
        long long size = fraction | (long long)(field ? 1 : 0) << 52;
        for (unsigned i = 0; i < 3; i++) {
            long long digit = digit_of(x < 0 ? -size : size, position % 32, i);
            atomicAdd(&gathering()->word[position / 32 + i], (unsigned long long)digit);
        }
    }

    /* The warps do that by themselves. */
    __device__ __forceinline__ void empty(unsigned long long *) {}

    __device__ __forceinline__ void finish()
    {
        unsigned lane = threadIdx.x % 32, i = threadIdx.x / 32 * bins + lane;
        kept += units();
        if (lane < bins) {
            gathering()->value[i] = kept;
            gathering()->position[i] = position(top, (int)lane);
        }
        add_flags(gathering()->word, flags);
        if (__syncthreads_or(column.held != Column::unused))
            gather_columns();
    }

    /* Mostly, all warps' bins have the units of the first warp's, so their integers are added up
     * first. The bins are 42 apart: six digits. */
    static __device__ __forceinline__ void merge()
    {
        Gathering *all = gathering();
        unsigned lane = threadIdx.x, warp = lane < blockDim.x / 32 ? lane : 0;
        unsigned k = all->position[bins - 1] / 32 + lane;
        long long sum[bins], digit = 0;
        for (unsigned b = 0; b < bins; b++) {
            unsigned position = all->position[warp * bins + b];
            bool is_common = position == all->position[b];
            sum[b] = lane < blockDim.x / 32 ? all->value[warp * bins + b] : 0;
            if (!is_common)
                add_integer(all->word, sum[b], position);
            sum[b] = is_common ? sum[b] : 0;
        }
        for (unsigned b = 0; b < bins; b++)
            sum[b] = warp_total(sum[b]);
        __syncwarp();
        for (unsigned b = 0; b < bins; b++)
            digit += digit_of(sum[b], all->position[b] % 32, k - all->position[b] / 32);
        if (lane < 6)
            all->word[k] += (unsigned long long)digit;
    }

    /* Adds up the columns of all threads, low and high halves apart. */
    __device__ __forceinline__ void gather_columns()
    {
        const long long *all = deposit_memory<long long>();
        unsigned lane = threadIdx.x % 32;
        column.make_room(0);
        __syncthreads();
        for (unsigned k = threadIdx.x / 32; k < Column::digits; k += blockDim.x / 32) {
            long long low = 0, high = 0;
            for (unsigned t = lane; t < blockDim.x; t += 32) {
                long long digit = all[k * blockDim.x + t];
                low += digit & 0xffffffff;
                high += digit >> 32;
            }
            low = warp_sum(low);
            high = warp_sum(high);
            if (lane == 0) {
                atomicAdd(&gathering()->word[k], (unsigned long long)low);
                atomicAdd(&gathering()->word[k + 1], (unsigned long long)high);
            }
        }
    }
};

#endif
