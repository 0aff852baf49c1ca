/* segment_shared: each block adds up in shared memory first.
 *
 * With few segments, all blocks of segment_atomics queue for a few addresses of the L2 cache. Here
 * each block has sums of its own, and adds them to those of all blocks once, at its end. If there
 * is room, the lanes of a warp have different copies of a sum, so that they do not queue for one
 * bank.
 *
 * Still wasted: two atomic additions of 32 bits per element, as shared memory has none of 64. */
#include "parts/segment_words.h"

template <typename In, typename Word>
__global__ void __launch_bounds__(GR_SEGMENT_THREADS, 1) segment_shared(gr_segment_job of)
{
    gr_word_plan plan = plan_of<In>(of);
    unsigned stride = plan.words + plan.flags;
    gr_segment_state *state = of.state;

    if (!is_in_words(of, plan) || !is_in_shared(of, plan))
        return;
    unsigned sums = unsigned(of.segments * of.columns) * stride, copies = 1;
    while (copies < 32 && 2 * copies * sums <= of.shared_words)
        copies *= 2;
    SharedWords mine(shared_array<unsigned>(), sums * copies);
    for (unsigned i = threadIdx.x; i < 2 * sums * copies; i += blockDim.x)
        mine.low[i] = 0;
    __syncthreads();

    for_each_value<In>(of, [&](bool is_there, size_t row, uint64_t c, unsigned long long id, In x) {
        if (is_there && id >= of.segments) {
            note_place(&state->bad, row);
            is_there = false;
        }
        if (!is_there)
            return;
        unsigned first = (unsigned(id) * unsigned(of.columns) + unsigned(c)) * stride;
        unsigned copy = threadIdx.x & (copies - 1);
        split_into_words<In>(
            x, plan,
            [&](unsigned k, long long value) {
                mine.add((first + k) * copies + copy, value, plan.checked && k + 1 == plan.words,
                         state);
            },
            [&](unsigned flag) {
                atomicOr(mine.low + (first + plan.words) * copies + copy, flag);
            });
    });

    __syncthreads();
    unsigned long long *words = reinterpret_cast<unsigned long long *>(of.words);
    for (unsigned i = threadIdx.x; i < sums; i += blockDim.x) {
        unsigned k = i % stride;
        long long sum = 0;
        unsigned flags = 0;
        for (unsigned copy = 0; copy < copies; copy++) {
            long long part = mine.get(i * copies + copy);
            if (plan.checked && k + 1 == plan.words && overflows(sum, part))
                note_overflow(state);
            sum = (long long)((unsigned long long)sum + (unsigned long long)part);
            flags |= (unsigned)part;
        }
        if (k < plan.words)
            add_to_word(of, plan, words + (i - k), k, sum);
        else if (flags)
            atomicOr(words + i, (unsigned long long)flags);
    }
}
