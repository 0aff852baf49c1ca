/* Elements as integers in the fixed-point words of shared/segment_sums.h. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_WORDS_H
#define GPUREDUCE_KERNEL_SEGMENT_WORDS_H

#include <gpureduce/exact_add.cuh>

#include "segments.h"

static_assert(GR_EXACT_NAN == int(gpureduce::EXACT_NAN) &&
                  GR_EXACT_PLUS_INF == int(gpureduce::EXACT_PLUS_INF) &&
                  GR_EXACT_MINUS_INF == int(gpureduce::EXACT_MINUS_INF),
              "the flags of both are the same");

/* A finite float is +- size 2^(exponent + the least subnormal's). float16 and bfloat16 elements
 * count as float32 ones. */
using Scaled = gpureduce::exact_number;

template <typename In> __device__ __forceinline__ Scaled scaled(In x)
{
    using Float = std::conditional_t<std::is_same<In, double>::value, double, float>;
    return gpureduce::exact_type<Float>::number(Float(x));
}

template <typename In> constexpr bool is_integer_element = std::is_integral<In>::value;

/* The exponent of the least subnormal of the type that `scaled` counts from. */
template <typename In>
constexpr int least_exponent = std::is_same<In, double>::value ? -1074 : -149;

/* Plans the words for values with these exponents. */
__device__ __forceinline__ gr_word_plan plan_for(const gr_segment_job &of, unsigned high,
                                                 unsigned low, unsigned specials)
{
    bool is_float = gr_is_float((gr_load)of.load);
    gr_word_plan plan = gr_plan_words(high, low, specials, is_float, of.attempt, of.width);
    plan.per_pass = gr_segments_per_pass(&of, &plan);
    if (is_float)
        gr_let_overlap(&plan, &of, high - low);
    return plan;
}

/* Plans the words by a sample, if they have bits to spare. Additional words for spare bits would
 * take more additions, unless words overlap. The smallest value may be far below the sample's, but
 * the largest is seldom twice the sample's. A checked word also needs room for a sum. So spare bits
 * above the sample are only as many as that takes, and all others are below the sample. */
__device__ __forceinline__ bool plans_by_sample(const gr_segment_job &of, gr_word_plan *plan)
{
    gr_extremes sample = of.state->sample;
    unsigned high = sample.high + 1, low = ~sample.low, most = GR_SPARE_BITS;
    if (of.attempt > 0 || of.sampled == 1 || high <= low)
        return false;
    *plan = plan_for(of, sample.high, low, sample.specials);
    /* A checked word has 63 bits: those of an element, and as many as a sum of mean length adds. */
    unsigned added = 64 - (unsigned)__clzll((long long)(of.rows / of.segments));
    if (plan->checked && of.state->hot) /* some sums are far longer */
        return false;
    if (plan->checked && GR_CHECKED_BITS + added > 64)
        high = sample.high + GR_CHECKED_BITS + added - 63;
    if (plan->room < high - low + most) {
        *plan = plan_for(of, high, low < most ? 0 : low - most, sample.specials);
        if (!plan->overlaps)
            return false;
    }
    unsigned spare = plan->room - (high - low);
    plan->low = low > spare ? (int)(low - spare) : 0;
    return true;
}

/* Plans the words of an attempt: segment_clear does so, for all kernels that follow. */
__device__ __forceinline__ gr_word_plan plan_of(const gr_segment_job &of)
{
    gr_word_plan plan;
    gr_extremes seen = of.state->seen;
    if (!plans_by_sample(of, &plan))
        plan = plan_for(of, seen.high, ~seen.low, seen.specials);
    return plan;
}

/* Whether the words hold all values. By now segment_atomics, or segment_range, has seen these. */
__device__ __forceinline__ bool holds_all(const gr_word_plan &plan, const gr_segment_state *state)
{
    const gr_extremes &seen = state->seen;
    return seen.high <= (unsigned)plan.low + plan.room && ~seen.low >= (unsigned)plan.low &&
           (plan.flags || !seen.specials);
}

/* Whether sums of words are wanted in this attempt. */
__device__ __forceinline__ bool adds_words(const gr_segment_job &of)
{
    return !is_in_rows(of) && (of.attempt != 1 || of.state->overflow);
}

/* The same for this pass: a plan may need fewer passes than are launched. */
__device__ __forceinline__ bool adds_words_in_pass(const gr_segment_job &of)
{
    return adds_words(of) && (of.pass == 0 || of.pass * of.state->plan.per_pass < of.segments);
}

__device__ __forceinline__ void note_overflow(gr_segment_state *state)
{
    atomicExch(&state->overflow, 1u);
}

/* Whether each block keeps its sums in shared memory first. */
__device__ __forceinline__ bool is_in_shared(const gr_segment_job &of, const gr_word_plan &plan)
{
    return of.shared_words &&
           of.segments * of.columns * (plan.words + plan.flags) <= of.shared_words &&
           plan.per_pass >= of.segments;
}

/* Drops bits below the unit. They are zero, if the words hold all values. Then only zeros are
 * shifted by 64 bits or more. */
__device__ __forceinline__ unsigned long long without_bits(unsigned long long size, int bits)
{
    return bits < 64 ? size >> bits : 0;
}

/* A finite value as an integer, where sums have one word. */
template <typename In>
__device__ __forceinline__ long long only_word(In x, const gr_word_plan &plan)
{
    if constexpr (is_integer_element<In>) {
        return (long long)x;
    } else {
        Scaled s = scaled(x);
        int up = s.exponent - plan.low;
        unsigned long long size = up < 0 ? without_bits(s.size, -up) : s.size << (up & 63);
        long long whole = (long long)size;
        return s.is_negative ? -whole : whole;
    }
}

/* A value as an integer of word k, where it needs no other; and its flag, if it is inf or nan and
 * there is a word for flags. */
struct OneWord {
    long long value;
    unsigned k, flag;
};

template <bool overlaps, typename In>
__device__ __forceinline__ OneWord whole_of(In x, const gr_word_plan &plan)
{
    if constexpr (!overlaps) {
        return {only_word(x, plan), 0, 0};
    } else {
        Scaled s = scaled(x);
        if (s.flag)
            return {0, 0, plan.flags ? s.flag : 0};
        int up = s.exponent - plan.low;
        unsigned long long size = up < 0 ? without_bits(s.size, -up) : s.size;
        unsigned k = up > 0 ? (unsigned)up / plan.width : 0;
        k = k < plan.words ? k : plan.words - 1; /* if no word holds the value */
        unsigned shift = up > 0 ? ((unsigned)up - k * plan.width) & 63 : 0;
        long long whole = (long long)(size << shift);
        return {s.is_negative ? -whole : whole, k, 0};
    }
}

/* Calls add(k, integer) for each word that an element touches, and flag(bits) for an inf or nan, if
 * there is a word for flags. */
template <typename In, typename Add, typename Flag>
__device__ __forceinline__ void split_into_words(In x, const gr_word_plan &plan, Add add, Flag flag)
{
    Scaled s = scaled(x);
    if (s.flag && plan.flags)
        flag(s.flag);
    if (s.flag)
        return;
    int up = s.exponent - plan.low;
    unsigned long long rest = up >= 0 ? s.size : without_bits(s.size, -up);
    unsigned long long mask = (1ull << plan.width) - 1;
    up = up >= 0 ? up : 0;
    unsigned k = (unsigned)up / plan.width;
    k = k < plan.words ? k : plan.words - 1;
    unsigned shift = ((unsigned)up - k * plan.width) & 63;
    while (rest) {
        bool is_top = k + 1 == plan.words;
        unsigned long long part = is_top ? rest << shift : rest << shift & mask;
        rest = is_top ? 0 : rest >> (plan.width - shift);
        if (part)
            add(k, s.is_negative ? -(long long)part : (long long)part);
        shift = 0;
        k++;
    }
}

/* Whether a + b leaves the range of int64. */
__device__ __forceinline__ bool overflows(long long a, long long b)
{
    long long sum = (long long)((unsigned long long)a + (unsigned long long)b);
    return ((a ^ sum) & (b ^ sum)) < 0;
}

/* Adds to a word in device memory. */
__device__ __forceinline__ void add_to_word(gr_segment_state *state, unsigned long long *word,
                                            long long value, bool is_checked)
{
    if (!is_checked) {
        add_without_result(word, (unsigned long long)value);
    } else if (value) {
        long long before = (long long)atomicAdd(word, (unsigned long long)value);
        if (overflows(before, value))
            note_overflow(state);
    }
}

/* Sums in a block's shared memory: 64-bit words in two halves, because shared memory has atomic
 * additions of 32 bits only. An addition to the low half returns its carry for the high half. The
 * carries of all additions make the two halves their exact sum, whatever their order. */
struct SharedWords {
    unsigned *low, *high;

    __device__ __forceinline__ SharedWords(unsigned *memory, unsigned count)
        : low(memory), high(memory + count)
    {
    }

    __device__ __forceinline__ void add(gr_segment_state *state, unsigned at, long long value,
                                        bool is_checked) const
    {
        unsigned part = (unsigned)value, carry = 0;
        if (part)
            carry = atomicAdd(low + at, part) > ~part;
        unsigned up = (unsigned)(value >> 32) + carry;
        if (!up)
            return;
        if (is_checked) {
            int before = (int)atomicAdd(high + at, up), after = (int)((unsigned)before + up);
            if (((before ^ after) & ((int)up ^ after)) < 0)
                note_overflow(state);
        } else {
            atomicAdd(high + at, up);
        }
    }

    __device__ __forceinline__ long long get(unsigned at) const
    {
        return (long long)((unsigned long long)high[at] << 32 | low[at]);
    }
};

/* Adds a block's sums to those of all blocks. */
__device__ __forceinline__ void leave_shared(const gr_segment_job &of, const gr_word_plan &plan,
                                             const SharedWords &mine, unsigned sums,
                                             unsigned copies)
{
    unsigned stride = plan.words + plan.flags;
    unsigned long long *words = reinterpret_cast<unsigned long long *>(of.words);
    for (unsigned i = threadIdx.x; i < sums; i += blockDim.x) {
        bool is_checked = plan.checked && i % stride + 1 == plan.words;
        long long sum = 0;
        unsigned flags = 0;
        for (unsigned copy = 0; copy < copies; copy++) {
            long long part = mine.get(i * copies + copy);
            if (is_checked && overflows(sum, part))
                note_overflow(of.state);
            sum = (long long)((unsigned long long)sum + (unsigned long long)part);
            flags |= (unsigned)part;
        }
        if (i % stride < plan.words && sum)
            add_to_word(of.state, words + i, sum, is_checked);
        else if (i % stride == plan.words && flags)
            atomicOr(words + i, (unsigned long long)flags);
    }
}

#endif
