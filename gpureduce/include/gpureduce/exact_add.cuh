/* Exact additions in place of atomicAdd: the sums have the same bits in every run.
 *
 * atomicAdd on floats rounds at each addition, so the sum depends on the order of the threads. Here
 * a sum is a wide fixed-point number in 64-bit integer words. A float is added to it as an integer,
 * by an integer atomic, without rounding. value() rounds once, to nearest, ties to even.
 *
 *     __global__ void add(gpureduce::exact_sum<float> *bins, const int *bin, const float *x, int n)
 *     {
 *         int i = blockIdx.x * blockDim.x + threadIdx.x;
 *         if (i < n)
 *             bins[bin[i]].add(x[i]);       // was: atomicAdd(&bins[bin[i]], x[i])
 *     }
 *     __global__ void finish(float *out, const gpureduce::exact_sum<float> *bins)
 *     {
 *         out[threadIdx.x] = bins[threadIdx.x].value();
 *     }
 *
 * exact_sum<T>             any value of T: float, double, __half, __nv_bfloat16, long, long long.
 *                          72 bytes for float, 304 for double. A float touches one word.
 * exact_window<T, LOW>     multiples of 2^LOW below 2^(LOW + 82) in size. 16 bytes. Any other value
 *                          sets a flag: value() is then nan, and is_outside() tells why.
 * exact_window<T, LOW, K>  the same for at most 2^K additions, of float multiples of 2^LOW below
 *                          2^(LOW + 99 - 2 K). Its additions do not read the word's old value.
 *
 * sum.add(x)               from any thread, in any order; `sum` lies in global or shared memory
 * sum.add_shared(x)        the same, and faster, for a sum in this block's shared memory
 * add_in_warp(sum, x)      sum.add(x) by all lanes of a warp together. Lanes that add to the same
 *                          word make one atomic. For addresses to which many lanes add.
 * sum.merge(other)         adds a sum of the same type, such as a block's in shared memory
 * sum.reset()              makes it empty: all its bytes are zero, as by cudaMemset()
 * sum.value()              the sum as a T; value<double>() as another type
 *
 * reset(), value() and `other` of merge() are plain accesses: the additions must have ended, by a
 * barrier of the block or with the kernel.
 *
 * A nan, or +inf and -inf together, make a sum nan. Infinities of one sign make it that infinity. A
 * finite sum is inf only if it rounds to inf. A sum of nothing but -0.0 is +0.0. A sum of integers
 * beyond the range of its type is the nearest end of the range. Up to 2^32 values can be added to a
 * sum, those of merged sums included.
 *
 * Needs C++14, and cuda_fp16.h or cuda_bf16.h before it for sums of these types. For nvcc, NVRTC,
 * clang, and the emulator of gpureduce. Documentation: docs/replace_atomicadd.md of gpureduce.
 * SPDX-License-Identifier: MIT */
#ifndef GPUREDUCE_EXACT_ADD_CUH
#define GPUREDUCE_EXACT_ADD_CUH

struct __half;
struct __nv_bfloat16;

namespace gpureduce
{

/* --- numbers as integers --- */

enum exact_limits {
    EXACT_FLAG_BITS = 4, /* the lowest bits of word 0 */
    EXACT_NAN = 1,
    EXACT_PLUS_INF = 2,
    EXACT_MINUS_INF = 4,
    EXACT_OUTSIDE = 8,
    EXACT_COUNT_BITS = 32, /* 2^32 additions */
    EXACT_PART_BITS = 58   /* of one addition to a word: the sum of 32 lanes is below 2^63 */
};

/* The number +-size 2^(exponent + least), where 2^least is the smallest subnormal of its type. */
struct exact_number {
    unsigned long long size;
    int exponent;
    bool is_negative;
    unsigned flag; /* not 0 for inf and nan: then the rest means nothing */
};

__host__ __device__ __forceinline__ int exact_bit_length(unsigned long long m)
{
    int length = m != 0;
    for (int step = 32; step > 0; step /= 2)
        if (m >> step)
            m >>= step, length += step;
    return length;
}

/* A binary floating-point type. Its sums have WORDS words, STRIDE bits apart. */
template <typename T, typename Bits, int FRACTION, int LEAST, int STRIDE, int WORDS>
struct exact_float {
    static constexpr int least = LEAST, stride = STRIDE, words = WORDS, bits = FRACTION + 1;
    static constexpr int fields = 1 << (8 * sizeof(Bits) - bits); /* values of the exponent field */
    static constexpr int most = fields - 3; /* the largest exponent, counted from LEAST */
    static constexpr bool is_integer = false;
    static constexpr unsigned long long one = 1ull << FRACTION;

    static __device__ __forceinline__ exact_number number(T x)
    {
        Bits raw;
        memcpy(&raw, &x, sizeof raw);
        unsigned long long fraction = raw & (one - 1);
        int field = int((unsigned long long)raw >> FRACTION) & (fields - 1);
        exact_number n;
        n.size = field ? fraction | one : fraction;
        n.exponent = field ? field - 1 : 0;
        n.is_negative = (raw >> (8 * sizeof(Bits) - 1)) != 0;
        n.flag = 0;
        if (field == fields - 1)
            n.flag = fraction ? EXACT_NAN : n.is_negative ? EXACT_MINUS_INF : EXACT_PLUS_INF;
        return n;
    }

    static __host__ __device__ T of_bits(unsigned long long bits, bool is_negative)
    {
        Bits raw = Bits(bits | (unsigned long long)is_negative << (8 * sizeof(Bits) - 1));
        T x;
        memcpy((void *)&x, &raw, sizeof raw);
        return x;
    }

    /* m 2^exponent, rounded; m < 2^63. 2^last is the distance of the type's numbers around it. The
     * exponent's field is last - least, plus 1 by the mantissa's highest bit, which is added to it.
     * A mantissa that rounds up to a power of two carries into the field, as it should. */
    static __host__ __device__ T rounded(unsigned long long m, int exponent, bool is_negative)
    {
        int last = exponent + exact_bit_length(m) - bits;
        if (last < LEAST)
            last = LEAST;
        int drop = last - exponent;
        unsigned long long mantissa = drop > 63 ? 0 : drop > 0 ? m >> drop : m << -drop;
        if (drop > 0 && drop <= 63) {
            unsigned long long half = 1ull << (drop - 1), rest = m & (2 * half - 1);
            mantissa += rest > half || (rest == half && mantissa & 1);
        }
        const unsigned long long infinity = (fields - 1) * one;
        unsigned long long all = (unsigned long long)(last - LEAST) * one + mantissa;
        return of_bits(m == 0 ? 0 : all < infinity ? all : infinity, is_negative);
    }

    static __host__ __device__ T special(unsigned flags)
    {
        bool is_inf = flags == EXACT_PLUS_INF || flags == EXACT_MINUS_INF;
        return of_bits((fields - 1) * one + (is_inf ? 0 : one / 2), flags == EXACT_MINUS_INF);
    }
};

template <typename T> struct exact_integer {
    static constexpr int least = 0, stride = 56, words = 2, bits = 64, most = 0;
    static constexpr bool is_integer = true;

    static __device__ __forceinline__ exact_number number(T x)
    {
        unsigned long long size = (unsigned long long)(long long)x;
        return exact_number{x < 0 ? 0 - size : size, 0, x < 0, 0};
    }

    static __host__ __device__ T rounded(unsigned long long m, int exponent, bool is_negative)
    {
        const unsigned long long end = 1ull << (8 * sizeof(T) - 1); /* one above the largest T */
        unsigned long long size = exponent < 0 ? m >> -exponent : m << (exponent & 63);
        if (exponent > 0 && (exponent > 63 || size >> exponent != m))
            size = end;
        if (size >= end)
            size = is_negative ? end : end - 1;
        return T((long long)(is_negative ? 0 - size : size));
    }

    static __host__ __device__ T special(unsigned)
    {
        return 0; /* integers set no flags */
    }
};

__host__ __device__ exact_float<float, unsigned, 23, -149, 32, 9> exact_of(float *);
__host__ __device__ exact_float<double, unsigned long long, 52, -1074, 56, 38> exact_of(double *);
__host__ __device__ exact_float<__half, unsigned short, 10, -24, 56, 2> exact_of(__half *);
__host__ __device__ exact_float<__nv_bfloat16, unsigned short, 7, -133, 32, 9>
exact_of(__nv_bfloat16 *);
__host__ __device__ exact_integer<long> exact_of(long *);
__host__ __device__ exact_integer<long long> exact_of(long long *);
template <typename T> using exact_type = decltype(exact_of((T *)0));

/* --- sums --- */

/* A number as integers for two neighbouring words: low for word k, high for word k + 1. */
struct exact_parts {
    int k;
    long long low, high;
    unsigned flag;
};

/* The sum is word[0] 2^-FLAG_BITS + word[1] 2^(STRIDE - FLAG_BITS) + ..., in units of 2^LOW, where
 * words are signed. The lowest FLAG_BITS bits of word 0 are flags. All additions to word 0 are
 * multiples of 2^FLAG_BITS, so they leave the flags alone.
 *
 * Proof that nothing is lost, if CARRIES. Atomic additions to a word happen one after another. If
 * one of them overflows the signed word, the word differs from its true value by 2^64, and the
 * thread adds 2^(64 - STRIDE) to the next word in its place. So after all additions, the words are
 * the exact sum modulo 2^64 of the last word, whatever the order. That is the sum itself if it
 * fits: each value is below 2^(most_place + bits) = 2^(30 + STRIDE (WORDS - 1)), so 2^32 values are
 * at most 2^62 in the last word, and the words below it change that by less than 2^62.
 *
 * Proof without CARRIES. An addition to a word is below 2^(bits + STRIDE - 1) in size. exact_window
 * makes this 2^(63 - K), so 2^K additions stay below 2^63. */
template <typename T, int LOW = exact_type<T>::least, int STRIDE = exact_type<T>::stride,
          int WORDS = exact_type<T>::words, bool CARRIES = true>
struct exact_sum {
    typedef exact_type<T> type;
    /* The place of a number's lowest bit is its exponent + shift, and at most most_place. */
    static constexpr int shift = EXACT_FLAG_BITS + type::least - LOW;
    static constexpr int most_place =
        CARRIES ? 62 - EXACT_COUNT_BITS + STRIDE * (WORDS - 1) - type::bits : STRIDE * WORDS - 1;
    static constexpr bool is_whole = type::bits + STRIDE - 1 <= EXACT_PART_BITS; /* in one word */
    static_assert(LOW >= type::least, "2^LOW is below the smallest number of the type");
    static_assert(STRIDE > 0 && most_place >= EXACT_FLAG_BITS && (CARRIES || is_whole),
                  "exact_window: K is from 5 to 61 less the bits of a mantissa: 37 for float");

    unsigned long long word[WORDS];

    __device__ __forceinline__ void add(T x)
    {
        add_parts<false>(split(x));
    }

    __device__ __forceinline__ void add_shared(T x)
    {
        add_parts<true>(split(x));
    }

    __device__ __forceinline__ void merge(const exact_sum &other)
    {
        for (int k = 0; k < WORDS; k++)
            if (unsigned long long more = other.without_flags(k))
                add_to<false>(k, (long long)more);
        if (other.flags())
            atomicOr(word, (unsigned long long)other.flags());
    }

    __host__ __device__ void reset()
    {
        for (int k = 0; k < WORDS; k++)
            word[k] = 0;
    }

    __host__ __device__ unsigned flags() const
    {
        return unsigned(word[0]) % (1 << EXACT_FLAG_BITS);
    }

    __host__ __device__ bool is_outside() const
    {
        return (flags() & EXACT_OUTSIDE) != 0;
    }

    template <typename R = T> __host__ __device__ R value() const
    {
        static_assert(type::is_integer || !exact_type<R>::is_integer, "a sum of floats is a float");
        if (flags())
            return exact_type<R>::special(flags());
        /* The digits of the sum, or of -sum if that is positive: from 0 to 2^STRIDE - 1. */
        const unsigned long long mask = (1ull << STRIDE) - 1;
        unsigned long long digit[WORDS];
        long long sign = 1, top;
        do {
            long long carry = 0;
            for (int k = 0; k < WORDS - 1; k++) {
                long long d = sign * (long long)(without_flags(k) & mask) + carry;
                digit[k] = (unsigned long long)d & mask;
                carry = (d >> STRIDE) + sign * ((long long)without_flags(k) >> STRIDE);
            }
            top = sign * (long long)word[WORDS - 1] + carry;
        } while (top < 0 && (sign = -sign) < 0);
        /* The highest 63 bits. Their lowest one is set if a lower bit is. */
        unsigned long long m = (unsigned long long)top;
        int exponent = STRIDE * (WORDS - 1);
        bool is_more = false;
        for (int k = WORDS - 2; k >= 0; k--) {
            int take = 63 - exact_bit_length(m);
            take = take < STRIDE ? take : STRIDE;
            m = m << take | digit[k] >> (STRIDE - take);
            exponent -= take;
            is_more = is_more || (digit[k] & (mask >> take)) != 0;
        }
        return exact_type<R>::rounded(m | is_more, exponent + LOW - EXACT_FLAG_BITS, sign < 0);
    }

    /* --- the steps of an addition --- */

    static __device__ __forceinline__ exact_parts split(T x)
    {
        exact_number n = type::number(x);
        int place = n.exponent + shift; /* of the lowest bit */
        exact_parts parts = {0, 0, 0, n.flag};
        if (n.flag || n.size == 0)
            return parts;
        if (shift < EXACT_FLAG_BITS && place < EXACT_FLAG_BITS) { /* bits below 2^LOW must be 0 */
            int drop = EXACT_FLAG_BITS - place;
            if (drop > 63 || (n.size >> drop << drop) != n.size)
                parts.flag = EXACT_OUTSIDE;
            n.size >>= drop & 63;
            place = EXACT_FLAG_BITS;
        }
        if (type::most + shift > most_place && place > most_place)
            parts.flag = EXACT_OUTSIDE;
        if (parts.flag)
            return parts;
        parts.k = int(unsigned(place) / STRIDE);
        int up = int(unsigned(place) % STRIDE);
        unsigned long long low = n.size << up, high = 0;
        if (!is_whole && n.size >> (EXACT_PART_BITS - up)) {
            low &= (1ull << STRIDE) - 1;
            high = n.size >> (STRIDE - up);
        }
        parts.low = n.is_negative ? -(long long)low : (long long)low;
        parts.high = n.is_negative ? -(long long)high : (long long)high;
        return parts;
    }

    template <bool IS_SHARED> __device__ __forceinline__ void add_parts(const exact_parts &parts)
    {
        if (parts.low)
            add_to<IS_SHARED>(parts.k, parts.low);
        if (!is_whole && parts.high)
            add_to<IS_SHARED>(parts.k + 1, parts.high);
        if (parts.flag)
            atomicOr(word, (unsigned long long)parts.flag);
    }

    /* Adds to a word, and a carry to the next one if the word overflows, which is rare. */
    template <bool IS_SHARED> __device__ __forceinline__ void add_to(int k, long long v)
    {
        int carry = add_word<IS_SHARED>(word + k, v);
        while (CARRIES && carry && ++k < WORDS)
            carry = add_word<IS_SHARED>(word + k, carry * (1ll << (64 - STRIDE)));
    }

    /* Returns 1 or -1 if the signed word overflowed. */
    template <bool IS_SHARED>
    static __device__ __forceinline__ int add_word(unsigned long long *at, long long v)
    {
        if (!IS_SHARED) {
            long long old = (long long)atomicAdd(at, (unsigned long long)v);
            long long now = (long long)((unsigned long long)old + (unsigned long long)v);
            return ((old ^ now) & (v ^ now)) >= 0 ? 0 : v > 0 ? 1 : -1;
        }
        /* Atomics on shared memory add 32 bits: the low half's carry goes to the high half. */
        unsigned *half = reinterpret_cast<unsigned *>(at);
        unsigned low = unsigned(v);
        long long high = v >> 32;
        if (low && atomicAdd(half, low) > ~low)
            high++;
        if (high == 0)
            return 0;
        long long now = (int)atomicAdd(half + 1, unsigned(high)) + high;
        return now > 0x7fffffff ? 1 : now < -0x7fffffffll - 1 ? -1 : 0;
    }

    __host__ __device__ unsigned long long without_flags(int k) const
    {
        return k ? word[k] : word[0] >> EXACT_FLAG_BITS << EXACT_FLAG_BITS;
    }
};

/* Two words. With K, words overlap as little as 2^K additions need. */
template <typename T, int LOW, int K = 0>
using exact_window = exact_sum<T, LOW, K ? 64 - exact_type<T>::bits - K : 56, 2, K == 0>;

/* --- one addition for several lanes of a warp --- */

/* The sum of v over the lanes `peers`, in the first of them. All lanes of `mask` call it. Each step
 * adds the value of the next peer, and leaves every second one. */
__device__ __forceinline__ long long exact_add_peers(long long v, unsigned peers, unsigned lane,
                                                     unsigned mask)
{
    unsigned rank = __popc(peers & ((1u << lane) - 1)), above = peers & (0xfffffffeu << lane);
    while (__any_sync(mask, above != 0)) {
        int next = __ffs(int(above));
        long long more = __shfl_sync(mask, v, next ? next - 1 : int(lane));
        v += next ? more : 0;
        above &= __ballot_sync(mask, rank % 2 == 0);
        rank /= 2;
    }
    return v;
}

/* sum.add(x) for the lanes of `mask`, which call it together. Their sums may differ. */
template <typename Sum, typename T>
__device__ __forceinline__ void add_in_warp(Sum &sum, T x, unsigned mask = 0xffffffffu)
{
    unsigned rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned lane = rank % 32;
    exact_parts parts = Sum::split(x);
    unsigned peers = __match_any_sync(mask, (unsigned long long)(sum.word + parts.k));
    parts.low = exact_add_peers(parts.low, peers, lane, mask);
    if (!Sum::is_whole && __any_sync(mask, parts.high != 0))
        parts.high = exact_add_peers(parts.high, peers, lane, mask);
    if (__ffs(int(peers)) - 1 != int(lane))
        parts.low = parts.high = 0;
    sum.template add_parts<false>(parts);
}

} // namespace gpureduce

#endif
