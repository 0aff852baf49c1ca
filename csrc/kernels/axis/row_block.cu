/* row_block: one block adds up one row.
 *
 * Long rows keep a whole block busy: many loads in flight on one row, and one tree at its end.
 *
 * Still wasted: multiprocessors, if there are fewer rows than these, and the threads of the block
 * while the tree runs. */
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    row_block(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out)
{
    constexpr unsigned flight = packs_in_flight<Acc>;
    size_t columns = in.of.columns, block = blockDim.x;

    for (size_t r = blockIdx.x; r < in.rows(); r += gridDim.x) {
        const In *row = in.row(r);
        Packed<const In *> packed(row, columns);
        Acc sum = ends_of<Acc>(row, columns, packed, threadIdx.x);
        for (size_t i = threadIdx.x; i < packed.packs; i += flight * block) {
            Pack<In> pack[flight];
            for (unsigned k = 0; k < flight; k++)
                pack[k] = packed.or_zero(i + k * block, packed.packs);
            add_packs_to(sum, pack);
        }
        sum = block_sum(sum);
        out.put_by_block(out.place(r), r, sum, in.terms_of(r));
    }
}
