/* tiles: each block reads a contiguous share of the array.
 *
 * In a grid-stride loop the loads of a block are a whole grid apart, each in another page of
 * memory. Here the loads of a block are neighbours, and the memory opens fewer pages: some percent
 * more bandwidth. One launch, eight 16-byte loads in flight per thread, and the last block
 * finishes. For back-to-back sums, prefetches the next sum's first bytes into L2 while this one
 * finishes.
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

    /* Shares begin at multiples of a warp's 32 packs, counted from the start of the first pack's
     * line: a warp's load that crosses lines fetches one more. So the first share can begin before
     * the first pack. Such an index wraps around to a huge one, and the thread skips it. */
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
    /* Loose elements go to the last blocks first, as the tail follows the last share. */
    LooseEnds<Acc, In> ends(in, n, packed, (gridDim.x - 1 - blockIdx.x) * block + threadIdx.x);
    decltype(packed[0]) pack[flight];
    Acc sum = 0;
    MOSTLY_ONCE
    for (; i + (flight - 1) * block < end; i += flight * block) { /* no bounds checks */
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
