/* segment_atomics: an atomic addition of an integer per element.
 *
 * The obvious kernel adds floats with atomicAdd, so each run adds in another order and rounds to
 * other bits. Here elements become integers, whose sum does not depend on the order. A warp whose
 * ids agree adds up by shuffles first. Ids that a sample found often have sums in shared memory, so
 * that not all blocks queue for one address.
 *
 * Still wasted: an addition in the L2 cache per element, wherever its segment lies. */
#include "parts/segment_hot.h"

template <typename In, typename Word>
__global__ void __launch_bounds__(512, 2) segment_atomics(gr_segment_job of)
{
    gr_word_plan plan = plan_of<In>(of);
    unsigned stride = plan.words + plan.flags;
    uint64_t begin = of.pass * plan.per_pass, count = plan.per_pass;
    gr_segment_state *state = of.state;

    if (!is_in_words(of, plan) || is_in_shared(of, plan))
        return;
    Hot hot(of, plan);
    unsigned long long *words = reinterpret_cast<unsigned long long *>(of.words);
    for_each_value<In>(of, [&](bool is_there, size_t row, uint64_t c, unsigned long long id, In x) {
        if (is_there && id >= of.segments) {
            note_place(&state->bad, row);
            is_there = false;
        }
        is_there = is_there && id - begin < count;
        unsigned long long *word = words + ((id - begin) * of.columns + c) * stride;
        unsigned slot = GR_HOT_SLOTS;
        if (hot.is_used && is_there)
            slot = hot.find(id);
        long long whole = 0; /* the only word, which a warp may share */
        split_into_words<In>(
            is_there ? x : In{}, plan,
            [&](unsigned k, long long value) {
                if (plan.words == 1 && slot == GR_HOT_SLOTS)
                    whole = value;
                else if (slot < GR_HOT_SLOTS)
                    hot.sums.add(hot.place(slot, threadIdx.x % GR_HOT_COPIES, k), value,
                                 plan.checked && k + 1 == plan.words, state);
                else
                    add_to_word(of, plan, word, k, value);
            },
            [&](unsigned flag) { atomicOr(word + plan.words, (unsigned long long)flag); });
        if (plan.words > 1)
            return;
        if (of.columns == 1) {
            unsigned long long first = __shfl_sync(0xffffffffu, id, 0);
            if (__all_sync(0xffffffffu, is_there && id == first)) {
                for (unsigned offset = 16; offset > 0; offset /= 2)
                    whole += __shfl_down_sync(0xffffffffu, whole, offset);
                whole = threadIdx.x % 32 ? 0 : whole;
            }
        }
        if (is_there)
            add_to_word(of, plan, word, 0, whole);
    });
    if (!hot.is_used)
        return;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < GR_HOT_SLOTS * GR_HOT_COPIES * plan.words; i += blockDim.x) {
        unsigned k = i % plan.words, slot = i / plan.words / GR_HOT_COPIES;
        long long sum = hot.sums.get(i);
        if (sum)
            add_to_word(of, plan, words + (hot.id[slot] - 1 - begin) * stride, k, sum);
    }
}
