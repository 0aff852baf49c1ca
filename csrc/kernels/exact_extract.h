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
    static constexpr unsigned flight = 8, room = 1 << 10, rounds = ~0u, patience = 32;
    static constexpr int bins = 3, step = 42, headroom = 11;
    static constexpr unsigned infinity = 0x7ff00000; /* the upper word of inf, and nan's is more */
    Column column;
    double bin[bins];
    int top;           /* the first bin's k; the same in all lanes of a warp, as are these two: */
    unsigned taken;    /* elements since the bins were empty */
    unsigned wild = 0; /* flights for which the bins are not tried */
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

    /* What the warp's bins have taken. As bits, the floats of a binade are consecutive integers. */
    __device__ __forceinline__ long long units(int b) const
    {
        long long from = __double_as_longlong(middle(bin_exponent(top, b)));
        return warp_sum(__double_as_longlong(bin[b]) - from);
    }

    __device__ __forceinline__ int position(int b) const
    {
        return bin_exponent(top, b) - 52 - GR_EXACT_UNIT;
    }

    __device__ __forceinline__ void restart(unsigned long long *totals, int next_top)
    {
        if (taken > 0)
            for (int b = 0; b < bins; b++) {
                long long sum = units(b);
                if (threadIdx.x % 32 == 0 && sum != 0)
                    add_integer(totals, sum, (unsigned)position(b));
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
                                          unsigned long long *totals)
    {
        for (unsigned offset = 16; offset > 0; offset /= 2) {
            unsigned other = __shfl_xor_sync(0xffffffffu, peak, offset);
            peak = peak > other ? peak : other;
        }
        /* In steps of 16, so that the warps agree, and the next peak a little higher fits. */
        int k = ((int)(peak >> 20) + headroom + 15) / 16 * 16 - 1022;
        k = k < 1022 ? k : 1022;
        if (k > top)
            restart(totals, k);
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

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight],
                                        unsigned long long *totals)
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
            raise(peak, x, totals);
        for (unsigned j = 0; j < 2 * flight; j++) {
            x[j] = extract(x[j]);
            left |= upper(x[j]) | (unsigned)__double2loint(x[j]);
        }
        if (left)
            add_integers(x);
        taken += 2 * flight;
        if (__popc(__ballot_sync(0xffffffffu, left != 0)) > 8) {
            wild = patience;
            restart(totals, headroom - 1023);
        } else if (taken == room) {
            restart(totals, top);
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
        for (int b = 0; b < bins; b++) {
            long long sum = units(b);
            if (threadIdx.x % 32 == 0)
                gather(threadIdx.x / 32 * bins + b, sum, position(b));
        }
        bool any = __syncthreads_or(column.held != Column::unused); /* and the words are zero */
        gather_flags(flags);
        if (any)
            gather_columns();
    }

    /* Mostly, all warps' bins have the same units. */
    static __device__ __forceinline__ unsigned long long gathered(unsigned k)
    {
        unsigned long long word = 0;
        unsigned warps = blockDim.x / 32;
        for (unsigned b = 0; b < bins; b++) {
            long long sum = 0;
            unsigned position = gathering()->position[b], which = k - position / 32;
            for (unsigned warp = 0; warp < warps; warp++) {
                unsigned i = warp * bins + b;
                if (gathering()->position[i] == position)
                    sum += gathering()->value[i];
                else
                    word += gathered_digit(i, k);
            }
            if (which < 3)
                word += (unsigned long long)digit_of(sum, position % 32, which);
        }
        return word;
    }

    __device__ __forceinline__ void gather_columns()
    {
        const long long *all = deposit_memory<long long>();
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        Column::tidy(column.digit, column.held != Column::unused);
        __syncthreads();
        for (unsigned k = warp; k < Column::digits; k += blockDim.x / 32) {
            long long sum = 0;
            for (unsigned t = lane; t < blockDim.x; t += 32)
                sum += all[k * blockDim.x + t];
            sum = warp_sum(sum);
            if (lane == 0)
                atomicAdd(&gathering()->word[k], (unsigned long long)sum);
        }
    }
};

#endif
