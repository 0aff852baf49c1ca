/* one_block: a single block adds up everything.
 *
 * last_block pays for its ticket: a fence and an atomic, each a round trip to memory, and then the
 * loads of all block sums. For a few thousand elements that costs more than the sum. One block
 * needs none of it. The time of one load remains, so each thread issues several loads before it
 * uses the first. The launch bounds give it the registers for that: no other block shares them.
 * Every later step adds latency. So the block size is a compile-time constant, sums are added by
 * halves instead of one after the other, and there is a single tree of shuffles instead of one per
 * warp and one more.
 *
 * Wasted: all multiprocessors but one. Good up to about 64 KiB. */
#include "parts/common.h"

template <typename In, typename Acc, unsigned Block>
__global__ void __launch_bounds__(1024, 1) one_block(In in, Acc *out, size_t n)
{
    constexpr unsigned warps = Block / 32;
    constexpr unsigned flight = Block == 128 ? 8 : 4; /* 16 KiB at once by 128 threads, or by 256 */
    Acc *partial = shared_array<Acc>();
    Packed<In> packed(in, n);

    if (threadIdx.x >= Block) /* threads beyond a power of two */
        return;
    packed.settled();
    invite_next_kernel();
    wait_for_earlier_kernels();
    LooseEnds<Acc, In> ends(in, n, packed, threadIdx.x);
    Acc sum = 0;
    MOSTLY_ONCE
    for (size_t i = threadIdx.x; i < packed.packs; i += flight * Block) {
        decltype(packed[0]) pack[flight];
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + k * Block, packed.packs);
        Acc part[flight];
        for (unsigned k = 0; k < flight; k++)
            part[k] = sum_of<Acc>(pack[k]);
        sum += sum_by_halves(part);
    }

    /* A shuffle takes longer than a load from shared memory, and several loads can be in flight. So
     * the first warp loads the sums of all threads, and only then runs the tree. */
    partial[threadIdx.x] = ends.after(sum);
    __syncthreads();
    if (threadIdx.x < 32) {
        Acc part[warps];
        for (unsigned k = 0; k < warps; k++)
            part[k] = partial[threadIdx.x + 32 * k];
        sum = warp_sum(sum_by_halves(part));
        if (threadIdx.x == 0)
            *out = sum;
    }
}
