/* segment_zeros: makes +0 of -0.0 in the rows of `out` that rows were added to.
 *
 * A sum that is zero is +0, but rows of `out` without an id keep their bits. If all words of a sum
 * are zero, segment_round cannot tell these two cases apart. Then it leaves -0.0 alone and sets
 * `leaves_zeros`. Rows with the same id store the same number here.
 *
 * Still wasted: a launch, which seldom has anything to do. */
#include "parts/segment_places.h"
#include "parts/segment_words.h"

template <typename In, typename Word> __global__ void segment_zeros(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    uint64_t grid = (uint64_t)gridDim.x * blockDim.x;
    if (is_in_rows(of) || of.state->bad || !of.state->leaves_zeros)
        return;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < of.rows; i += grid) {
        uint64_t k = index_at(of.index, i);
        for (uint64_t c = 0; k < of.segments && c < of.columns; c++) {
            char *to = place_in_out(of, k, c);
            if (element_at<double>(to, 0, of.load) == 0)
                store_bits(to, 0, of.sums.bytes);
        }
    }
}
