/* segment_round: rounds each sum once and stores it, or stores its digits.
 *
 * Nothing is stored if an id was out of range, or if a value did not fit into the words. The words
 * are set to zero for the next pass: they are in the L2 cache now. Sums of many words, or with an
 * initial number, are first converted to digits of 32 bits, which takes longer. */
#include "parts/segment_rounding.h"

__device__ __forceinline__ void clear_sum(uint64_t *word, const gr_word_plan &plan, bool is_last)
{
    for (unsigned k = 0; !is_last && k < plan.words + plan.flags; k++)
        word[k * plan.word_step] = 0;
}

template <typename In, typename Word>
__global__ void __launch_bounds__(256, 4) segment_round(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    stop_if_wrong(of);
    if (!adds_words_in_pass(of) || of.state->bad || (of.attempt == 0 && of.state->overflow))
        return;
    gr_word_plan plan = of.state->plan;
    if (of.attempt == 0 && !holds_all(plan, of.state)) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            note_overflow(of.state);
        return;
    }
    uint64_t begin = of.pass * plan.per_pass, left = of.segments - begin;
    size_t count = (plan.per_pass < left ? plan.per_pass : left) * of.columns;
    size_t grid = (size_t)gridDim.x * blockDim.x;
    bool is_last = left <= plan.per_pass;
    bool is_float = gr_is_float(of.sums.type);
    int least = of.load == GR_LOAD_f64 ? -1074 : -149;
    gr_format format = gr_format_of(of.sums.type);

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += grid) {
        uint64_t k = of.columns == 1 ? i : i / of.columns, c = of.columns == 1 ? 0 : i % of.columns;
        uint64_t *word = of.words + i * plan.sum_step;
        char *to = static_cast<char *>(const_cast<void *>(of.out.base)) +
                   (int64_t)(begin + k) * of.out.row_step + column_offset(of.out, c);
        unsigned long long bits;
        if (of.sums.as_digits) {
            DigitsHead head = {of.sums.parts, of.sums.parts == 2 ? unsigned(c % 2) : 0,
                               of.sums.type, of.sums.counts[begin + k]};
            store_digits_of(to, head, word, plan, least, (gr_load)of.load);
            clear_sum(word, plan, is_last);
            continue;
        }
        if (!is_float) {
            bits = word[0] + initial_of<unsigned long long>(of.sums, c);
        } else {
            double initial =
                of.in_place ? element_at<double>(to, 0, of.load) : initial_of<double>(of.sums, c);
            uint64_t any = 0;
            for (unsigned k = 0; of.in_place && k < plan.words + plan.flags; k++)
                any |= word[k * plan.word_step];
            if (of.in_place && !any) { /* without rows, or they add up to 0 */
                if (initial == 0 && signbit(initial))
                    of.state->leaves_zeros = 1;
                continue;
            }
            if ((plan.words - 1) * plan.width < 63 && !plan.flags && initial == 0) {
                unsigned __int128 total = 0; /* below 2^127 in size */
                for (unsigned k = 0; k < plan.words; k++)
                    total += (unsigned __int128)(__int128)(long long)word[k * plan.word_step]
                             << k * plan.width;
                bits = round_total((__int128)total, plan.low + least, format);
            } else {
                bits = round_words_of(word, plan, least, initial, of.sums.type);
            }
        }
        store_bits(to, bits, of.sums.bytes);
        clear_sum(word, plan, is_last);
    }
}
