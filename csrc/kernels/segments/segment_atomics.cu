/* segment_atomics: an atomic addition of an integer per element.
 *
 * Floats round at each addition, so their sums depend on the order. Here elements become integers,
 * whose sums do not. If all values of a warp go to the same word, shuffles add them up first.
 * Frequent ids (segment_sample) have sums in shared memory: blocks do not queue for one address.
 *
 * Still wasted: an atomic addition in the L2 cache per element and word. */
#include "parts/segment_extremes.h"
#include "parts/segment_hot.h"

/* For elements that are added to one word each. */
template <bool overlaps, typename In>
__device__ __forceinline__ void add_whole(const gr_segment_job &of, const gr_word_plan &plan)
{
    Range range(of, plan);
    Seen<In> seen;
    unsigned long long *words = reinterpret_cast<unsigned long long *>(of.words);
    for_each_value<4, In>(of, [&](bool is_there, size_t row, uint64_t c, unsigned long long id,
                                  In x) {
        seen.add_if(is_there, x);
        is_there = is_there && range.has(of, id, row);
        OneWord whole = whole_of<overlaps>(x, plan);
        uint64_t first = range.place_of(of, plan, id, c);
        uint64_t at = overlaps ? first + whole.k * plan.word_step : first;
        long long value = is_there ? whole.value : 0;
        if (of.columns == 1)
            value = sum_for_one_word(value, is_there, at);
        if (value)
            add_to_word(of.state, words + at, value, plan.checked);
        if (overlaps && is_there && whole.flag)
            atomicOr(words + first + plan.words * plan.word_step, (unsigned long long)whole.flag);
    });
    seen.leave(of);
}

template <typename In> /* for elements of several words, flags and frequent ids */
__device__ __forceinline__ void add_words(const gr_segment_job &of, const gr_word_plan &plan)
{
    Range range(of, plan);
    Seen<In> seen;
    Hot hot(of, plan);
    auto use = [&](bool is_there, size_t row, uint64_t c, unsigned long long id, In x) {
        seen.add_if(is_there, x);
        if (!is_there || !range.has(of, id, row))
            return;
        unsigned long long *word = range.words_of(of, plan, id, c);
        unsigned slot = hot.find(id);
        auto add = [&](unsigned k, long long value) { hot.add(of, plan, slot, word, k, value); };
        auto flag = [&](unsigned bits) { atomicOr(word + plan.words, (unsigned long long)bits); };
        if constexpr (is_integer_element<In>)
            add(0, (long long)x);
        else
            split_into_words(x, plan, add, flag);
    };
    for_each_value<2, In>(of, use);
    seen.leave(of);
    hot.leave(of, plan, range);
}

template <typename In, typename Word>
__global__ void __launch_bounds__(512, 2) segment_atomics(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    gr_word_plan plan = of.state->plan;
    if (!adds_words_in_pass(of) || is_in_shared(of, plan))
        return;
    if constexpr (!is_integer_element<In> && !std::is_same<In, double>::value)
        if (plan.overlaps)
            return add_whole<true, In>(of, plan);
    if (plan.words > 1 || plan.flags || of.state->hot)
        add_words<In>(of, plan);
    else
        add_whole<false, In>(of, plan);
}
