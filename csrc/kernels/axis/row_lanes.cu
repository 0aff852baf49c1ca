/* row_lanes: a warp adds up one row, an element per lane and step.
 *
 * The lanes read neighbouring elements, so the sectors of a load are used whole, and shuffles add
 * up the lanes' sums. The second launch of the kernels that cut their sums into shares is one of
 * this kernel: its elements are then the shares' sums, of any type.
 *
 * Still wasted: loads of one element each, one after another; and lanes, if rows are short. */
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1) row_lanes(Matrix<In> in, Sums<Acc> out)
{
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    size_t first = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;

    for (size_t r = first; r < in.rows(); r += warps) {
        const In *row = in.row(r);
        Acc sum = 0;
        for (size_t c = threadIdx.x % 32; c < in.of.columns; c += 32)
            add_to(sum, row[c]);
        out.put_by_warp(r, warp_sum(sum), in.terms_of(r));
    }
}
