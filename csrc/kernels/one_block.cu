/* one_block: a single block adds up everything.
 *
 * last_block pays for its ticket: a fence and an atomic, a round trip to memory each, and then the
 * reading back of all block sums. For a few thousand elements that costs more than the sum. One
 * block needs none of it. What is left is the time of one load, so each thread issues eight before
 * it uses the first.
 *
 * Wasted: all multiprocessors but one. Good up to about 64 KiB. */
#include "common.h"

template <typename In, typename Acc> __global__ void one_block(In in, Acc *out, size_t n)
{
    constexpr unsigned flight = 8;
    Packed<In> packed(in, n);
    size_t block = blockDim.x;

    wait_for_earlier_kernels();
    Acc sum = loose_ends<Acc>(in, n, packed, threadIdx.x);
    for (size_t i = threadIdx.x; i < packed.packs; i += flight * block) {
        decltype(packed[0]) pack[flight];
        for (unsigned k = 0; k < flight; k++)
            pack[k] = packed.or_zero(i + k * block, packed.packs);
        for (unsigned k = 0; k < flight; k++)
            sum += sum_of<Acc>(pack[k]);
    }

    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = sum;
}
