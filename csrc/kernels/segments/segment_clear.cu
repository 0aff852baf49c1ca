/* segment_clear: plans the words of the sums, and sets those of the first pass to zero.
 *
 * How many words a sum needs depends on the exponents, which only the device knows. segment_round
 * sets the words of the next passes to zero. */
#include "parts/segment_words.h"

template <typename In, typename Word> __global__ void segment_clear(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    if (!adds_words(of))
        return;
    gr_word_plan plan = plan_of(of);
    uint64_t segments = plan.per_pass < of.segments ? plan.per_pass : of.segments;
    size_t count = segments * of.columns * (plan.words + plan.flags);
    size_t grid = (size_t)gridDim.x * blockDim.x;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (first == 0)
        of.state->plan = plan;
    ulonglong2 *pairs = reinterpret_cast<ulonglong2 *>(of.words);
    for (size_t i = first; i < count / 2; i += grid)
        pairs[i] = ulonglong2{0, 0};
    if (count % 2 && first == 0)
        of.words[count - 1] = 0;
}
