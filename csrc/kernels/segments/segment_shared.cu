/* segment_shared: each block adds up in shared memory first.
 *
 * With few segments, all blocks of segment_atomics queue for a few addresses of the L2 cache. Here
 * each block has sums of its own, and adds them to those of all blocks once, at its end. If there
 * is room, a sum has several copies for the lanes of a warp: fewer lanes then queue for one bank.
 *
 * Still wasted: two atomic additions per word, as those in shared memory add 32 bits at most. */
#include "parts/segment_words.h"

template <bool has_one, typename In>
__device__ __forceinline__ void add_in_shared(const gr_segment_job &of, const gr_word_plan &plan,
                                              const SharedWords &mine, unsigned copies)
{
    gr_segment_state *state = of.state;
    unsigned stride = plan.words + plan.flags, copy = threadIdx.x & (copies - 1);
    for_each_value<has_one ? 8 : 2, In>(
        of, [&](bool is_there, size_t row, uint64_t c, unsigned long long id, In x) {
            if (is_there && id >= of.segments)
                note_place(&state->bad, row);
            if (!is_there || id >= of.segments)
                return;
            unsigned first = (unsigned(id) * unsigned(of.columns) + unsigned(c)) * stride;
            if constexpr (has_one) {
                mine.add(state, first * copies + copy, only_word(x, plan), plan.checked);
            } else {
                auto add = [&](unsigned k, long long value) {
                    bool is_checked = plan.checked && k + 1 == plan.words;
                    mine.add(state, (first + k) * copies + copy, value, is_checked);
                };
                split_into_words(x, plan, add, [&](unsigned flag) {
                    atomicOr(mine.low + (first + plan.words) * copies + copy, flag);
                });
            }
        });
}

template <typename In, typename Word>
__global__ void __launch_bounds__(GR_SEGMENT_THREADS, 1) segment_shared(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    gr_word_plan plan = of.state->plan;
    unsigned stride = plan.words + plan.flags;

    if (!adds_words_in_pass(of) || !is_in_shared(of, plan))
        return;
    unsigned sums = unsigned(of.segments * of.columns) * stride, copies = 1;
    while (copies < 32 && 2 * copies * sums <= of.shared_words)
        copies *= 2;
    SharedWords mine(shared_array<unsigned>(), sums * copies);
    for (unsigned i = threadIdx.x; i < 2 * sums * copies; i += blockDim.x)
        mine.low[i] = 0;
    __syncthreads();
    if constexpr (is_integer_element<In>)
        add_in_shared<true, In>(of, plan, mine, copies);
    else if (stride == 1)
        add_in_shared<true, In>(of, plan, mine, copies);
    else
        add_in_shared<false, In>(of, plan, mine, copies);
    __syncthreads();
    leave_shared(of, plan, mine, sums, copies);
}
