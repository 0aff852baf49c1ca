/* tiles: each block walks through a contiguous share of the array.
 *
 * In a grid-stride loop the loads that a block has in flight lie a whole grid apart, each in
 * another page of memory. Here a block's loads are neighbours, and the memory opens fewer pages:
 * some percent more bandwidth. One launch, eight 16-byte loads in flight per thread, and the last
 * block finishes. Of sums in a row, the next one's first bytes are on their way into the L2 cache
 * while this one finishes.
 *
 * Still wasted: every byte passes through registers on its way to the adders. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void __launch_bounds__(1024, 1)
    tiles(In in, Acc *out, size_t n, Marked<Acc> *work, unsigned *ticket)
{
    constexpr unsigned flight = 8;
    Packed<In> packed(in, n);
    size_t block = blockDim.x;

    /* Shares are cut at multiples of a warp's 32 packs, counted from where the first pack's line
     * begins: a warp's load that lies across lines fetches one more. In the first block that can be
     * before the first pack, which as an index is one that is too large: the thread's next one. */
    size_t into_line = packed.into_line(), groups = (into_line + packed.packs + 31) / 32;
    size_t begin = groups * blockIdx.x / gridDim.x * 32 - into_line, i = begin + threadIdx.x;
    size_t end = groups * (blockIdx.x + 1) / gridDim.x * 32;
    end -= end ? into_line : 0;
    end = end < packed.packs ? end : packed.packs;
    i += i < end ? 0 : block;

    packed.settled();
    settle(i);
    settle(end);
    packed.fetch_ahead(begin, end);
    invite_next_kernel();
    wait_for_earlier_kernels();
    /* The last block's, as the tail lies behind its share. */
    LooseEnds<Acc, In> ends(in, n, packed, (gridDim.x - 1 - blockIdx.x) * block + threadIdx.x);
    decltype(packed[0]) pack[flight];
    Acc sum = 0;
    MOSTLY_ONCE
    for (; i + (flight - 1) * block < end; i += flight * block) { /* saves comparing each */
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed[i + k * block];
        for (unsigned k = 0; k < flight; k++)
            sum += sum_of<Acc>(pack[k]);
    }
    for (unsigned k = 0; k < flight; k++)
        pack[k] = packed.or_zero(i + k * block, end);
    for (unsigned k = 0; k < flight; k++)
        sum += sum_of<Acc>(pack[k]);

    finish_in_last_block(block_sum(ends.after(sum)), out, work, ticket);
}
