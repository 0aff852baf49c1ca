/* float32, bfloat16 and float16: bins that add up exactly what comes into them.
 *
 * float32: 16 float64 bins per thread, by the top four bits of the exponent field. Lemma. The
 * elements of bin b have exponent fields 16 b to 16 b + 15: they are multiples of 2^(16 b - 150)
 * and below 2^(24 + 15) of these units. So 2^12 of them are at most 2^51 units: every partial sum
 * is a float64, exactly, and so is that number of units plus 1.5 2^52, whose bits give the integer.
 *
 * bfloat16: 64 float32 bins per thread, by the top six bits. The elements of bin b are multiples of
 * 2^(4 b - 134) and below 2^(8 + 3) units, so 2^13 of them are at most 2^24. Sums of the bins at
 * the top would overflow, so the last quarter of the bins hold 2^-64 of their elements: one bit of
 * their exponents is taken away, which costs less than to ask each element whether it must be.
 *
 * Shared memory: bin b of thread t at [b][t], so that a warp's lanes, whichever bins they go to,
 * are in different banks. A bin's row is a power of two long, so that an element's exponent,
 * shifted and masked, is where its row begins. As integers, a bin of 2^10 threads makes at most
 * 2^61. */
#ifndef GPUREDUCE_EXACT_BINS_H
#define GPUREDUCE_EXACT_BINS_H

#include "exact_deposits.h"

/* `bins` per thread, by the exponent field's topmost bits. */
template <typename Bin, unsigned bins> struct Bins {
    unsigned row;   /* log2 of the bytes of a row */
    unsigned shift; /* what brings an element's bin to where the row begins */
    unsigned mask;
    unsigned mine; /* this thread's place in a row */
    unsigned flags = 0;

    __device__ __forceinline__ Bins()
    {
        row = 32 - (unsigned)__clz((int)blockDim.x - 1) + (sizeof(Bin) == 8 ? 3 : 2);
        shift = (bins == 16 ? 27 : 25) - row;
        mask = (bins - 1) << row;
        mine = threadIdx.x * (unsigned)sizeof(Bin);
        for (unsigned b = 0; b < bins; b++)
            *at(b << row | mine) = 0;
    }

    static __device__ __forceinline__ Bin *at(unsigned offset)
    {
        return reinterpret_cast<Bin *>(deposit_memory<char>() + offset);
    }

    /* The bin of an element with these bits, of a float32. */
    __device__ __forceinline__ Bin *bin_of(unsigned bits) const
    {
        return at((bits >> shift & mask) | mine);
    }

    __device__ __forceinline__ Bin *thread_bin(unsigned b, unsigned thread) const
    {
        return at((b << row) + thread * (unsigned)sizeof(Bin));
    }
};

template <> struct Deposit<float> : Bins<double, GR_EXACT_BINS> {
    static constexpr unsigned flight = 4, rounds = (1 << 12) / (4 * flight) - 1;
    static constexpr unsigned bins = GR_EXACT_BINS;

    __device__ __forceinline__ void add_loose(float x)
    {
        *bin_of(__float_as_uint(x)) += x;
    }

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned count,
                                        unsigned long long *)
    {
        for (unsigned k = 0; k < flight; k++)
            if (k < count)
                for (unsigned j = 0; j < 4; j++)
                    add_loose(__uint_as_float(pack[k].element[j]));
    }

    static __device__ __forceinline__ unsigned position(unsigned b)
    {
        return 16 * b + (unsigned)(-150 - GR_EXACT_UNIT);
    }

    /* All threads' bin b as an integer, in lane 0, by a warp; an inf or nan goes to the flags. */
    template <bool clear> __device__ __forceinline__ long long take(unsigned b)
    {
        const double middle = 6755399441055744.0; /* 1.5 2^52 */
        double scale = power_of_two(-GR_EXACT_UNIT - (int)position(b));
        long long sum = 0;
        for (unsigned t = threadIdx.x % 32; t < blockDim.x; t += 32) {
            double held = *thread_bin(b, t), units = held * scale + middle;
            if (clear)
                *thread_bin(b, t) = 0;
            if (b == bins - 1 && held - held != 0)
                flags |= special_flag(held);
            else
                sum += __double_as_longlong(units) - __double_as_longlong(middle);
        }
        return __any_sync(0xffffffffu, sum != 0) ? warp_sum(sum) : 0;
    }

    __device__ __forceinline__ void empty(unsigned long long *sum)
    {
        __syncthreads();
        for (unsigned b = threadIdx.x / 32; b < bins; b += blockDim.x / 32) {
            long long taken = take<true>(b);
            if (threadIdx.x % 32 == 0)
                add_integer(sum, taken, position(b));
        }
        __syncthreads();
    }

    __device__ __forceinline__ void finish()
    {
        __syncthreads();
        for (unsigned b = threadIdx.x / 32; b < bins; b += blockDim.x / 32) {
            long long taken = take<false>(b);
            if (threadIdx.x % 32 == 0)
                gathering()->value[b] = taken;
        }
        add_flags(gathering()->word, flags);
    }

    static __device__ __forceinline__ void merge()
    {
        merge_in_steps<16, bins>(position(0));
    }
};

/* A bfloat16 is the upper half of a float32; here are two in a word. */
template <> struct Deposit<__nv_bfloat16> : Bins<float, GR_EXACT_BF16_BINS> {
    static constexpr unsigned flight = 4, rounds = (1 << 13) / (8 * flight) - 1;
    static constexpr unsigned bins = GR_EXACT_BF16_BINS;
    static constexpr unsigned infinity = 0x7f80;                        /* nans are above */
    static constexpr unsigned together = 8, integers = bins / together; /* neighbours */

    /* Both bins are read before either is written: half the waiting. */
    __device__ __forceinline__ void add_word(unsigned word)
    {
        unsigned held = word & ~(word >> 1 & 0x20002000);
        float *low = bin_of(word << 16), *high = bin_of(word);
        float low_sum = *low, high_sum = *high;
        low_sum += __uint_as_float(held << 16);
        high_sum = (low == high ? low_sum : high_sum) + __uint_as_float(held & 0xffff0000);
        *low = low_sum;
        *high = high_sum;
    }

    __device__ __forceinline__ void take_specials(unsigned &word)
    {
        for (unsigned half = 0; half < 32; half += 16) {
            unsigned bits = word >> half & 0xffff;
            if ((bits & 0x7fff) < infinity)
                continue;
            flags |= special_flag((double)__uint_as_float(bits << 16));
            word &= ~(0xffffu << half);
        }
    }

    __device__ __forceinline__ void add_loose(__nv_bfloat16 x)
    {
        unsigned word = __float_as_uint(float(x)) >> 16;
        take_specials(word);
        add_word(word);
    }

    __device__ __forceinline__ void add(Pack<unsigned> (&pack)[flight], unsigned count,
                                        unsigned long long *)
    {
        unsigned high = 0;
        for (unsigned k = 0; k < flight; k++)
            for (unsigned j = 0; j < 4; j++)
                high |= (pack[k].element[j] & 0x7f807f80) + 0x00800080;
        if (high & 0x80008000)
            for (unsigned k = 0; k < flight; k++)
                for (unsigned j = 0; j < 4; j++)
                    take_specials(pack[k].element[j]);
        for (unsigned k = 0; k < flight; k++)
            if (k < count)
                for (unsigned j = 0; j < 4; j++)
                    add_word(pack[k].element[j]);
    }

    /* All threads' bin b as an integer, but for the sum over the lanes, by a warp. */
    template <bool clear> __device__ __forceinline__ int take(unsigned b) const
    {
        int exponent = 134 - 4 * (int)b + (b < bins / 4 * 3 ? 0 : 64), half = exponent / 2;
        float scale = __int_as_float((half + 127) << 23); /* 2^134 is no float32 */
        float again = __int_as_float((exponent - half + 127) << 23);
        int sum = 0; /* of at most 32 numbers up to 2^24 */
        for (unsigned t = threadIdx.x % 32; t < blockDim.x; t += 32) {
            sum += (int)(*thread_bin(b, t) * scale * again);
            if (clear)
                *thread_bin(b, t) = 0;
        }
        return sum;
    }

    /* Integer i: neighbouring bins make a number of 24 + 10 + 28 bits. In lane 0, by a warp. */
    template <bool clear> __device__ __forceinline__ long long take_together(unsigned i) const
    {
        long long sum = 0;
        for (unsigned j = 0; j < together; j++)
            sum += take<clear>(together * i + j) * (1ll << 4 * j);
        return warp_sum(sum);
    }

    static __device__ __forceinline__ unsigned position(unsigned i)
    {
        return 4 * together * i + (unsigned)(-134 - GR_EXACT_UNIT);
    }

    __device__ __forceinline__ void empty(unsigned long long *sum)
    {
        __syncthreads();
        for (unsigned i = threadIdx.x / 32; i < integers; i += blockDim.x / 32) {
            long long taken = take_together<true>(i);
            if (threadIdx.x % 32 == 0)
                add_integer(sum, taken, position(i));
        }
        __syncthreads();
    }

    __device__ __forceinline__ void finish()
    {
        __syncthreads();
        for (unsigned i = threadIdx.x / 32; i < integers; i += blockDim.x / 32) {
            long long taken = take_together<false>(i);
            if (threadIdx.x % 32 == 0)
                gathering()->value[i] = taken;
        }
        add_flags(gathering()->word, flags);
    }

    static __device__ __forceinline__ void merge()
    {
        merge_in_steps<4 * together, integers>(position(0));
    }
};

/* float16. Its bits put into a float64, sign to sign, exponent to exponent and fraction to
 * fraction, make it x 2^-1008, be it subnormal or not: 1008 is the difference of the biases. No
 * conversion is needed, which is slow. As 2^-24 divides all of them, 2^13 are at most 2^53 of that:
 * one float64 will do. An inf or nan would become a number, so they are looked for. */
template <> struct Deposit<__half> {
    static constexpr unsigned flight = 4, rounds = (1 << 13) / (8 * flight) - 1;
    static constexpr unsigned position = -24 - GR_EXACT_UNIT;
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

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned,
                                        unsigned long long *)
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

    __device__ __forceinline__ void empty(unsigned long long *sum)
    {
        long long units = take_units();
        if (threadIdx.x % 32 == 0)
            add_integer(sum, units, position);
    }

    __device__ __forceinline__ void finish()
    {
        long long units = take_units();
        if (threadIdx.x % 32 == 0)
            gathering()->value[threadIdx.x / 32] = units;
        add_flags(gathering()->word, flags);
    }

    /* All warps' are in the same units. */
    static __device__ __forceinline__ void merge()
    {
        unsigned lane = threadIdx.x;
        long long sum = warp_total(lane < blockDim.x / 32 ? gathering()->value[lane] : 0);
        if (lane < 3)
            gathering()->word[position / 32 + lane] +=
                (unsigned long long)digit_of(sum, position % 32, lane);
    }
};

#endif
