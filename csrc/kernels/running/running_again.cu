/* running_again: entries of running sums whose rounding running_tiles could not prove.
 *
 * Nearly always there are none, and all blocks return. Otherwise each thread adds up a walk, which
 * is some elements of a line, in digits of 32 bits, where nothing is rounded. After a grid barrier,
 * a warp per digit adds up the walks' digits along each line. After a second barrier, a thread goes
 * again through each walk whose tiles have such entries: it starts with the digits before the walk,
 * and rounds all of its entries. If lines have one walk each, only the last step is needed.
 *
 * Still wasted: for a single unproven entry, all elements before it are added up again. */
#include "parts/running_digits.h"

#include <cooperative_groups.h>

template <typename In, typename Acc>
__global__ void __launch_bounds__(GR_RUNNING_BLOCK)
    running_again(gr_running_lines of, const __grid_constant__ Sums<Acc> out,
                  gr_running_memory memory)
{
    if constexpr (is_proven<Acc>) {
        if (!*memory.any_again)
            return;
        size_t walks = (of.n + of.walk - 1) / of.walk, lines = of.strips * of.width;
        size_t id = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
        size_t threads = (size_t)gridDim.x * blockDim.x;
        if (walks > 1) {
            auto grid = cooperative_groups::this_grid();
            for (size_t k = id; k < walks * lines; k += threads) {
                size_t strip = k % lines / of.width;
                if (k / lines >= needed_walks(of, memory, strip))
                    continue;
                Line<In> line(of, out.of.base, strip, unsigned(k % of.width));
                GrowingDigits sum;
                walk(line, k / lines, &sum, [](size_t) {});
                sum.put_words(memory.digits + k * GR_EXACT_WORDS);
            }
            grid.sync();
            for (size_t k = id / 32; k < lines * GR_EXACT_WORDS; k += threads / 32)
                sum_before_walks(of, memory.digits + k, lines * GR_EXACT_WORDS,
                                 needed_walks(of, memory, k / GR_EXACT_WORDS / of.width),
                                 k % GR_EXACT_WORDS == GR_EXACT_DIGITS);
            grid.sync();
        }
        for (size_t k = id; k < walks * lines; k += threads) {
            Line<In> line(of, out.of.base, k % lines / of.width, unsigned(k % of.width));
            if (!is_again(of, memory, k / lines, k % lines / of.width))
                continue;
            GrowingDigits sum;
            if (walks > 1)
                sum.take_words(memory.digits + k * GR_EXACT_WORDS);
            walk(line, k / lines, &sum, [&](size_t i) {
                store_bits(line.entry(i), sum.rounded(out.of.type), out.of.bytes);
            });
        }
    }
}
