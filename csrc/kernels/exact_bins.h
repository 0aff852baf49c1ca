/* float32, bfloat16 and float16: bins that add up exactly what comes into them.
 *
 * float32: 16 float64 bins per thread, by the top four bits of the exponent field. Lemma. The
 * elements of bin b have exponent fields 16 b to 16 b + 15: they are multiples of 2^(16 b - 150)
 * and below 2^(24 + 15) of these units. So 2^12 of them are at most 2^51 units: every partial sum
 * is a float64, exactly, and so is that number of units plus 1.5 2^52, whose bits give the integer.
 *
 * bfloat16: 64 float32 bins per thread, by the top six bits. The elements of bin b are multiples of
 * 2^(4 b - 134) and below 2^(8 + 3) units, so 2^13 of them are at most 2^24. The four bins at the
 * top would overflow, so they hold 2^-64 of their elements.
 *
 * As integers, the bins of 2^10 threads make at most 2^61. Shared memory: bin b of thread t at
 * [b][t], so that a warp's lanes, whichever bins they go to, are in different banks. */
#ifndef GPUREDUCE_EXACT_BINS_H
#define GPUREDUCE_EXACT_BINS_H

#include "exact_deposits.h"

template <typename Bin, unsigned bins> struct Bins {
    Bin *bin; /* this thread's first */
    unsigned flags = 0;

    __device__ __forceinline__ Bins()
    {
        bin = deposit_memory<Bin>() + threadIdx.x;
        for (unsigned b = 0; b < bins; b++)
            bin[b * blockDim.x] = 0;
    }

    __device__ __forceinline__ void add_bits(unsigned bits)
    {
        constexpr unsigned shift = bins == 16 ? 27 : 25;
        bin[(bits >> shift & (bins - 1)) * blockDim.x] += (Bin)__uint_as_float(bits);
    }

    /* The bins of some neighbours b, of all threads, in units 2^unit of the first; those from
     * `scaled` on hold 2^-64 of their elements. By all lanes of a warp, which take the rest out. */
    template <unsigned neighbours>
    __device__ __forceinline__ long long take(unsigned first, int unit, int span, unsigned scaled)
    {
        const double middle = 6755399441055744.0; /* 1.5 2^52 */
        Bin *all = deposit_memory<Bin>();
        long long sum = 0;
        for (unsigned j = 0; j < neighbours; j++) {
            unsigned b = first + j;
            double scale = power_of_two((b < scaled ? 0 : 64) - (unit + span * (int)j));
            long long part = 0;
            for (unsigned t = threadIdx.x % 32; t < blockDim.x; t += 32) {
                double held = all[b * blockDim.x + t], units = held * scale + middle;
                all[b * blockDim.x + t] = 0;
                if (b == bins - 1 && held - held != 0)
                    flags |= special_flag(held);
                else
                    part += __double_as_longlong(units) - __double_as_longlong(middle);
            }
            sum += (long long)((unsigned long long)part << span * j);
        }
        return warp_sum(sum);
    }
};

template <> struct Deposit<float> : Bins<double, GR_EXACT_BINS> {
    static constexpr unsigned flight = 4, rounds = (1 << 12) / (4 * flight) - 1;

    __device__ __forceinline__ void add_loose(float x)
    {
        add_bits(__float_as_uint(x));
    }

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned long long *)
    {
        for (unsigned k = 0; k < flight; k++)
            for (unsigned j = 0; j < 4; j++)
                add_bits(pack[k].element[j]);
    }

    static __device__ __forceinline__ int unit(unsigned b)
    {
        return 16 * (int)b - 150;
    }

    __device__ __forceinline__ void empty(unsigned long long *totals)
    {
        __syncthreads();
        for (unsigned b = threadIdx.x / 32; b < GR_EXACT_BINS; b += blockDim.x / 32) {
            long long sum = take<1>(b, unit(b), 0, GR_EXACT_BINS);
            if (threadIdx.x % 32 == 0)
                add_integer(totals, sum, (unsigned)(unit(b) - GR_EXACT_UNIT));
        }
        __syncthreads();
    }

    __device__ __forceinline__ void finish()
    {
        __syncthreads();
        for (unsigned b = threadIdx.x / 32; b < GR_EXACT_BINS; b += blockDim.x / 32) {
            long long sum = take<1>(b, unit(b), 0, GR_EXACT_BINS);
            if (threadIdx.x % 32 == 0)
                gather(b, sum, unit(b) - GR_EXACT_UNIT);
        }
        gather_flags(flags);
    }

    /* The digits of at most six neighbouring bins overlap. */
    static __device__ __forceinline__ unsigned long long gathered(unsigned k)
    {
        unsigned long long word = 0;
        int first = (32 * ((int)k - 2) - unit(0) + GR_EXACT_UNIT) / 16;
        for (int b = first; b < first + 7; b++)
            if (b >= 0 && b < GR_EXACT_BINS)
                word += gathered_digit((unsigned)b, k);
        return word;
    }
};

/* A bfloat16 is the upper half of a float32. */
template <> struct Deposit<__nv_bfloat16> : Bins<float, GR_EXACT_BF16_BINS> {
    static constexpr unsigned flight = 2, rounds = (1 << 13) / (8 * flight) - 1;
    static constexpr unsigned top = 0x78000000; /* the fields of the four bins at the top */

    __device__ __forceinline__ void add_careful(unsigned bits)
    {
        unsigned bin_bits = bits & 0x7e000000, field = bits & 0x7f800000;
        if (field == 0x7f800000)
            flags |= special_flag((double)__uint_as_float(bits));
        else
            bin[(bin_bits >> 25) * blockDim.x] +=
                __uint_as_float((bits & top) == top ? bits - (64u << 23) : bits);
    }

    __device__ __forceinline__ void add_loose(__nv_bfloat16 x)
    {
        add_careful(__float_as_uint(float(x)));
    }

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned long long *)
    {
        unsigned high = 0;
        for (unsigned k = 0; k < flight; k++)
            for (unsigned j = 0; j < 4; j++)
                high |= (pack[k].element[j] & (top | top >> 16)) + (0x08000000 | 0x0800);
        bool careful = high & 0x80008000;
        for (unsigned k = 0; k < flight; k++)
            for (unsigned j = 0; j < 4; j++) {
                unsigned first = pack[k].element[j] << 16;
                unsigned second = pack[k].element[j] & 0xffff0000;
                if (careful) {
                    add_careful(first);
                    add_careful(second);
                } else {
                    add_bits(first);
                    add_bits(second);
                }
            }
    }

    /* Eight neighbours together are a number of 24 + 10 + 28 bits. */
    static constexpr unsigned together = 8, groups = GR_EXACT_BF16_BINS / together;

    static __device__ __forceinline__ int unit(unsigned group)
    {
        return 4 * (int)(together * group) - 134;
    }

    __device__ __forceinline__ long long take_group(unsigned group)
    {
        return take<together>(together * group, unit(group), 4, GR_EXACT_BF16_BINS - 4);
    }

    __device__ __forceinline__ void empty(unsigned long long *totals)
    {
        __syncthreads();
        for (unsigned group = threadIdx.x / 32; group < groups; group += blockDim.x / 32) {
            long long sum = take_group(group);
            if (threadIdx.x % 32 == 0)
                add_integer(totals, sum, (unsigned)(unit(group) - GR_EXACT_UNIT));
        }
        __syncthreads();
    }

    __device__ __forceinline__ void finish()
    {
        __syncthreads();
        for (unsigned group = threadIdx.x / 32; group < groups; group += blockDim.x / 32) {
            long long sum = take_group(group);
            if (threadIdx.x % 32 == 0)
                gather(group, sum, unit(group) - GR_EXACT_UNIT);
        }
        gather_flags(flags);
    }

    static __device__ __forceinline__ unsigned long long gathered(unsigned k)
    {
        unsigned long long word = 0;
        for (unsigned group = 0; group < groups; group++)
            word += gathered_digit(group, k);
        return word;
    }
};

/* float16. Its bits put into a float64, sign to sign, exponent to exponent and fraction to
 * fraction, make it x 2^-1008, be it subnormal or not: 1008 is the difference of the biases. No
 * conversion is needed, which is slow. As 2^-24 divides all of them, 2^13 are at most 2^53 of that:
 * one float64 will do. An inf or nan would become a number, so they are looked for. */
template <> struct Deposit<__half> {
    static constexpr unsigned flight = 4, rounds = (1 << 13) / (8 * flight) - 1;
    double sum[2] = {0, 0};
    unsigned flags = 0;

    static __device__ __forceinline__ double widened(unsigned upper)
    {
        return __hiloint2double((int)((upper & 0x80000000) | (upper & 0x7fff0000) >> 6), 0);
    }

    __device__ __forceinline__ void add_careful(unsigned upper)
    {
        if ((upper & 0x7c000000) != 0x7c000000)
            sum[0] += widened(upper);
        else if (upper & 0x03ff0000)
            flags |= GR_EXACT_NAN;
        else
            flags |= upper >> 31 ? GR_EXACT_MINUS_INF : GR_EXACT_PLUS_INF;
    }

    __device__ __forceinline__ void add_loose(__half half)
    {
        unsigned short bits;
        memcpy(&bits, &half, sizeof bits);
        add_careful((unsigned)bits << 16);
    }

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned long long *)
    {
        unsigned high = 0;
        for (unsigned k = 0; k < flight; k++)
            for (unsigned j = 0; j < 4; j++)
                high |= (pack[k].element[j] & 0x7c007c00) + 0x04000400;
        bool careful = high & 0x80008000;
        for (unsigned k = 0; k < flight; k++)
            for (unsigned j = 0; j < 4; j++) {
                unsigned word = pack[k].element[j];
                if (careful) {
                    add_careful(word << 16);
                    add_careful(word);
                } else {
                    sum[0] += widened(word << 16);
                    sum[1] += widened(word);
                }
            }
    }

    __device__ __forceinline__ long long take_units()
    {
        long long units = 0;
        for (unsigned i = 0; i < 2; i++) {
            units += (long long)(sum[i] * power_of_two(1008) * power_of_two(24));
            sum[i] = 0;
        }
        return warp_sum(units);
    }

    __device__ __forceinline__ void empty(unsigned long long *totals)
    {
        long long units = take_units();
        if (threadIdx.x % 32 == 0)
            add_integer(totals, units, -24 - GR_EXACT_UNIT);
    }

    __device__ __forceinline__ void finish()
    {
        long long units = take_units();
        if (threadIdx.x % 32 == 0)
            gather(threadIdx.x / 32, units, -24 - GR_EXACT_UNIT);
        __syncthreads(); /* the words are zero */
        gather_flags(flags);
    }

    /* All warps' are in the same units. */
    static __device__ __forceinline__ unsigned long long gathered(unsigned k)
    {
        long long sum = 0;
        unsigned position = -24 - GR_EXACT_UNIT, which = k - position / 32;
        for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
            sum += gathering()->value[warp];
        return which < 3 ? (unsigned long long)digit_of(sum, position % 32, which) : 0;
    }
};

#endif
