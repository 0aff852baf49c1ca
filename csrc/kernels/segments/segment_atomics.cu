/* segment_atomics: an atomic addition of an integer per element.
 *
 * The obvious kernel adds floats with atomicAdd, so each run adds in another order and rounds to
 * other bits. Here elements become integers, whose sum does not depend on the order. A warp whose
 * ids agree adds up by shuffles first. Ids that a sample found often have sums in shared memory, so
 * that not all blocks queue for one address.
 *
 * Still wasted: an addition in the L2 cache per element, wherever its segment lies. */
#include "parts/segment_hot.h"

/* For sums of one word and no frequent ids. */
template <bool is_checked, typename In>
__device__ __forceinline__ void add_only_words(const gr_segment_job &of, const gr_word_plan &plan)
{
    Range range(of, plan);
    for_each_value<8, In>(
        of, [&](bool is_there, size_t row, uint64_t c, unsigned long long id, In x) {
            is_there = is_there && range.has(of, id, row);
            long long whole = is_there ? only_word(x, plan) : 0;
            if (of.columns == 1)
                whole = sum_of_equal_ids(whole, is_there, id);
            if (whole)
                add_to_word(of.state, range.words_of(of, id, c, 1), whole, is_checked);
        });
}

/* For all others. */
template <typename In>
__device__ __forceinline__ void add_words(const gr_segment_job &of, const gr_word_plan &plan)
{
    Range range(of, plan);
    Hot hot(of, plan);
    unsigned stride = plan.words + plan.flags;
    for_each_value<2, In>(of,
                          [&](bool is_there, size_t row, uint64_t c, unsigned long long id, In x) {
                              if (!is_there || !range.has(of, id, row))
                                  return;
                              unsigned long long *word = range.words_of(of, id, c, stride);
                              unsigned slot = hot.find(id);
                              auto add = [&](unsigned k, long long value) {
                                  bool is_checked = plan.checked && k + 1 == plan.words;
                                  if (slot < GR_HOT_SLOTS)
                                      hot.sums.add(of.state, hot.place(slot, k), value, is_checked);
                                  else
                                      add_to_word(of.state, word + k, value, is_checked);
                              };
                              if constexpr (is_integer_element<In>)
                                  add(0, (long long)x);
                              else
                                  split_into_words(x, plan, add, [&](unsigned flag) {
                                      atomicOr(word + plan.words, (unsigned long long)flag);
                                  });
                          });
    hot.leave(of, plan, range);
}

template <typename In, typename Word>
__global__ void __launch_bounds__(512, 2) segment_atomics(gr_segment_job of)
{
    gr_word_plan plan = plan_of<In>(of);
    if (!is_in_words(of, plan) || is_in_shared(of, plan))
        return;
    if (plan.words > 1 || plan.flags || of.state->hot)
        add_words<In>(of, plan);
    else if (plan.checked)
        add_only_words<true, In>(of, plan);
    else
        add_only_words<false, In>(of, plan);
}
