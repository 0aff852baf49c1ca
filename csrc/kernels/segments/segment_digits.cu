/* segment_digits: a block adds up one sum in digits, where nothing is rounded.
 *
 * segment_runs and segment_join mark the few sums whose rounding they cannot prove. These sums are
 * added up again here. Kernels for segments whose bounds are known add up such sums themselves.
 *
 * Still wasted: the elements are read twice, or more often if their sizes differ widely. */
#include "parts/segment_again.h"

template <typename In, typename Word>
__global__ void segment_digits(const __grid_constant__ gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    const unsigned *bits = of.sums.unproven;

    if (!adds_rows(of) || !of.state->any_unproven)
        return;
    for (uint64_t i = blockIdx.x; i < of.segments; i += gridDim.x) {
        if (bits[i / 32] >> i % 32 & 1)
            add_segment_again_by_block(of, i, 0, rows_of(of, i));
    }
}
