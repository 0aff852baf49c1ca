/* float32, bfloat16 and float16: bins that add up their elements exactly.
 *
 * float32: 16 float64 bins per thread, by the top four bits of the exponent field. Lemma. The
 * elements of bin b have exponent fields 16 b to 16 b + 15: they are multiples of 2^(16 b - 150)
 * and below 2^(24 + 15) of these units. So 2^12 of them are at most 2^51 units: every partial sum
 * is a float64, exactly, and so is that number of units plus 1.5 2^52, whose bits give the integer.
 *
 * bfloat16: 64 float32 bins per thread, by the top six bits. The elements of bin b are multiples of
 * 2^(4 b - 134) and below 2^(8 + 3) units, so 2^13 of them are at most 2^24. Sums of the bins at
 * the top would overflow, so the last quarter of the bins hold 2^-64 of their elements: one bit of
 * their exponents is cleared. This costs less than a test of each element.
 *
 * Shared memory: bin b of thread t is at [b][t], so that the lanes of a warp use different banks,
 * whichever bins they access. The length of a bin's row is a power of two, so that an element's
 * exponent, shifted and masked, is the offset of its row. As integers, the bins b of 2^10 threads
 * add up to at most 2^61. */
#pragma once

#include "exact_deposits.h"

/* `bins` bins per thread, by the topmost bits of the exponent field. */
template <typename Bin, unsigned bins> struct Bins {
    unsigned row;   /* log2 of the bytes of a row */
    unsigned shift; /* shifts an element's bin to the row's offset */
    unsigned mask;
    unsigned mine; /* this thread's offset in a row */

    __device__ __forceinline__ Bins()
    {
        row = 32 - (unsigned)__clz((int)blockDim.x - 1) + (sizeof(Bin) == 8 ? 3 : 2);
        shift = (bins == 16 ? 27 : 25) - row;
        mask = (bins - 1) << row;
        mine = threadIdx.x * (unsigned)sizeof(Bin);
        clear();
    }

    __device__ __forceinline__ void clear()
    {
        for (unsigned b = 0; b < bins; b++)
            *at(b << row | mine) = 0;
    }

    __device__ __forceinline__ void prepare() {}

    static __device__ __forceinline__ Bin *at(unsigned offset)
    {
        return reinterpret_cast<Bin *>(deposit_memory<char>() + offset);
    }

    /* The bin of a float32 with these bits. */
    __device__ __forceinline__ Bin *bin_of(unsigned bits) const
    {
        return at((bits >> shift & mask) | mine);
    }

    /* Adds to two bins. Both are read before either is written, which halves the waiting. */
    static __device__ __forceinline__ void add_both(Bin *first, Bin x, Bin *second, Bin y)
    {
        Bin sum = *first, other = *second;
        sum += x;
        other = (first == second ? sum : other) + y;
        *first = sum;
        *second = other;
    }

    /* For a loop in which each lane reads bin b of all lanes that differ from it only in the lowest
     * bits. Round i reads that of lane ^ i, so that the lanes use different banks in each round. */
    __device__ __forceinline__ Bin *neighbour(unsigned b, unsigned i) const
    {
        return at((b << row | mine) ^ i * (unsigned)sizeof(Bin));
    }

    /* The place where a warp stores integers, after its bins have been read. */
    static __device__ __forceinline__ long long *integers_of(unsigned warp)
    {
        return reinterpret_cast<long long *>(at(warp * 32 * (unsigned)sizeof(Bin)));
    }
};

template <> struct Deposit<float> : Bins<double, GR_EXACT_BINS> {
    static constexpr unsigned most_threads = 1024, flight = 4,
                              rounds = (1 << 12) / (4 * flight) - 1;
    static constexpr unsigned bins = GR_EXACT_BINS;
    static constexpr unsigned position = -150 - GR_EXACT_UNIT; /* of bin 0; bin b: + 16 b */
    static constexpr unsigned first_word = position / 32, words = bins / 2 + 3;

    __device__ __forceinline__ void add_loose(float x)
    {
        *bin_of(__float_as_uint(x)) += x;
    }

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned count)
    {
        for (unsigned k = 0; k < flight; k++)
            if (k < count)
                for (unsigned j = 0; j < 4; j += 2) {
                    unsigned first = pack[k].element[j], second = pack[k].element[j + 1];
                    add_both(bin_of(first), __uint_as_float(first), bin_of(second),
                             __uint_as_float(second));
                }
    }

    /* Lanes b and b + 16 both read bin b, each from its half of the warp. */
    __device__ __forceinline__ void leave()
    {
        const double middle = 6755399441055744.0; /* 1.5 2^52 */
        constexpr unsigned field = 0x43300000;    /* of 2^52 up to 2^53 */
        unsigned lane = threadIdx.x % 32, b = lane % bins, outside = 0;
        double scale = power_of_two(150 - 16 * (int)b);
        unsigned long long total = 0 - bins * (unsigned long long)__double_as_longlong(middle);
        __syncwarp();
        for (unsigned i = 0; i < bins; i++) {
            double units = *neighbour(b, i) * scale + middle;
            total += (unsigned long long)__double_as_longlong(units);
            outside |= (unsigned)__double2hiint(units) ^ field;
        }
        if (outside >> 20)
            total = take_specials(b << row | mine, b);
        total += __shfl_xor_sync(0xffffffffu, total, bins);
        __syncwarp();
        if (lane < bins)
            integers_of(threadIdx.x / 32)[b] = (long long)total;
    }

    /* Reads bin b if it holds an inf or nan, from the same threads as `leave` does. A separate
     * function with a rolled loop, because inlined code would make the kernel much longer. */
    DEVICE_FUNCTION unsigned long long take_specials(unsigned own, unsigned b)
    {
        unsigned long long total = 0;
        MOSTLY_ONCE
        for (unsigned i = 0; i < bins; i++) {
            double held = *at(own ^ i * (unsigned)sizeof held);
            if (held - held != 0)
                add_flags(special_flag(held));
            else
                total += (unsigned long long)(long long)(held * power_of_two(150 - 16 * (int)b));
        }
        return total;
    }

    /* Lane m adds up bins 2 m and 2 m + 1, at first from every fourth warp. */
    static __device__ __forceinline__ long long merge(unsigned &k)
    {
        unsigned lane = threadIdx.x, m = lane % 8;
        long long even = 0, odd = 0;
        for (unsigned i = 0; i < 32 / 4; i++) { /* fixed count: loads do not wait */
            unsigned warp = lane / 8 + 4 * i;
            if (warp < blockDim.x / 32) {
                even += integers_of(warp)[2 * m];
                odd += integers_of(warp)[2 * m + 1];
            }
        }
        for (unsigned offset = 8; offset < 32; offset *= 2) {
            even += __shfl_xor_sync(0xffffffffu, even, offset);
            odd += __shfl_xor_sync(0xffffffffu, odd, offset);
        }
        static_assert(position % 32 >= 16, "odd bins begin one digit further up");
        k = position / 32 + lane;
        return spread(lane < 8 ? even : 0, position % 32, lane < 8 ? odd : 0, position % 32 - 16);
    }
};

/* A bfloat16 is the upper half of a float32. Here a word holds two. */
template <> struct Deposit<__nv_bfloat16> : Bins<float, GR_EXACT_BF16_BINS> {
    static constexpr unsigned most_threads = GR_EXACT_BF16_THREADS, flight = 4,
                              rounds = (1 << 13) / (8 * flight) - 1;
    static constexpr unsigned bins = GR_EXACT_BF16_BINS;
    static constexpr unsigned infinity = 0x7f80;                        /* nans are greater */
    static constexpr unsigned together = 8, integers = bins / together; /* neighbouring bins */
    static constexpr unsigned position = -134 - GR_EXACT_UNIT; /* of integer 0; i: + 32 i */
    static constexpr unsigned first_word = position / 32, words = integers + 2;
    unsigned flags = 0;

    __device__ __forceinline__ void add_word(unsigned word)
    {
        unsigned held = word & ~(word >> 1 & 0x20002000);
        add_both(bin_of(word << 16), __uint_as_float(held << 16), bin_of(word),
                 __uint_as_float(held & 0xffff0000));
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

    __device__ __forceinline__ void add(Pack<unsigned> (&pack)[flight], unsigned count)
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

    /* Lane l reads bins l and l + 32 of the warp. Eight neighbouring bins make one number of
     * 24 + 5 + 28 bits. */
    __device__ __forceinline__ void leave()
    {
        unsigned lane = threadIdx.x % 32;
        int taken[2] = {0, 0}; /* sums of 32 numbers up to 2^24 */
        __syncwarp();
        for (unsigned h = 0; h < 2; h++) {
            unsigned b = lane + 32 * h;
            int exponent = 134 - 4 * (int)b + (b < bins / 4 * 3 ? 0 : 64), half = exponent / 2;
            float scale = __int_as_float((half + 127) << 23); /* 2^134 is no float32 */
            float again = __int_as_float((exponent - half + 127) << 23);
            for (unsigned i = 0; i < 32; i++)
                taken[h] += (int)(*neighbour(b, i) * scale * again);
        }
        __syncwarp();
        for (unsigned h = 0; h < 2; h++) {
            long long together_sum = taken[h] * (1ll << lane % together * 4);
            for (unsigned offset = 1; offset < together; offset *= 2)
                together_sum += __shfl_xor_sync(0xffffffffu, together_sum, offset);
            if (lane % together == 0)
                integers_of(threadIdx.x / 32)[(lane + 32 * h) / together] = together_sum;
        }
        add_flags(flags);
        flags = 0;
    }

    /* Lane i adds up integer i, at first from every fourth warp. */
    static __device__ __forceinline__ long long merge(unsigned &k)
    {
        unsigned lane = threadIdx.x;
        long long sum = 0;
        for (unsigned i = 0; i < integers; i++) {
            unsigned warp = lane / integers + 32 / integers * i;
            if (warp < blockDim.x / 32)
                sum += integers_of(warp)[lane % integers];
        }
        for (unsigned offset = integers; offset < 32; offset *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        k = position / 32 + lane;
        return spread(lane < integers ? sum : 0, position % 32);
    }
};

/* float16. Its bits moved into a float64, sign to sign, exponent to exponent and fraction to
 * fraction, give x 2^-1008, also for subnormal x: 1008 is the difference of the biases. This avoids
 * a slow conversion. 2^-24 divides all elements, so 2^13 are at most 2^53 of it: one float64
 * suffices. An inf or nan would become a number, so there is a test for both. */
template <> struct Deposit<__half> {
    static constexpr unsigned most_threads = 1024, flight = 4,
                              rounds = (1 << 13) / (8 * flight) - 1;
    static constexpr unsigned position = -24 - GR_EXACT_UNIT;
    static constexpr unsigned first_word = position / 32, words = 3;
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

    __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[flight], unsigned)
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

    __device__ __forceinline__ void leave()
    {
        long long units = (long long)((sum[0] + sum[1]) * power_of_two(1008) * power_of_two(24));
        units = warp_sum(units);
        if (threadIdx.x % 32 == 0)
            gathering()->value[threadIdx.x / 32] = units;
        add_flags(flags);
        flags = 0;
    }

    __device__ __forceinline__ void clear()
    {
        sum[0] = sum[1] = 0;
    }

    __device__ __forceinline__ void prepare() {}

    static __device__ __forceinline__ long long merge(unsigned &k)
    {
        unsigned lane = threadIdx.x;
        long long total = warp_total(lane < blockDim.x / 32 ? gathering()->value[lane] : 0);
        k = position / 32 + lane;
        return spread(lane == 0 ? total : 0, position % 32);
    }
};
