/* row_split: several blocks share a row.
 *
 * With few long rows, a block per row leaves most of the card idle. Here each row is cut into as
 * many shares as fill the card, and a second launch, of row_lanes, adds up the shares' sums.
 *
 * Still wasted: that second launch. */
#include "parts/matrix.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    row_split(const __grid_constant__ Matrix<In> in, const __grid_constant__ Sums<Acc> out,
              unsigned shares)
{
    constexpr unsigned flight = packs_in_flight<Acc>;
    size_t columns = in.of.columns, block = blockDim.x;
    size_t r = blockIdx.x / shares, share = blockIdx.x % shares;
    const In *row = in.row(r);
    Packed<const In *> packed(row, columns);
    /* Shares begin at cache lines, so that no warp's load crosses one. */
    size_t lead = packed.into_line(), lines = (lead + packed.packs + 7) / 8;
    size_t end = lines * (share + 1) / shares * 8 - lead;
    size_t begin = share ? lines * share / shares * 8 - lead : 0;
    Acc sum = 0;

    end = end < packed.packs ? end : packed.packs;
    if (share == 0)
        sum = ends_of<Acc>(row, columns, packed, threadIdx.x);
    for (size_t i = begin + threadIdx.x; i < end; i += flight * block) {
        Pack<In> pack[flight];
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + k * block, end);
        add_packs_to(sum, pack);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out.put(blockIdx.x, sum, NoTerms(in));
}
