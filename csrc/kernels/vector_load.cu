/* vector_load: 16-byte loads, four in flight per thread.
 *
 * warp_shfl loaded one element, waited, added it, and loaded the next. A load takes hundreds of
 * cycles, so the bandwidth depends on the number of bytes in flight. Here each load reads 16 bytes
 * and a thread issues four before it uses the first. Elements outside the 16-byte boundaries, fewer
 * than 16 bytes at either end, are added one by one.
 *
 * Still wasted: a second launch, or the host, must add up the block sums. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void vector_load(In in, Acc *out, size_t n)
{
    Packed<In> packed(in, n);
    size_t id = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    size_t i = id;
    for (; i + 3 * grid_stride < packed.packs; i += 4 * grid_stride) {
        auto a = packed[i];
        auto b = packed[i + grid_stride];
        auto c = packed[i + 2 * grid_stride];
        auto d = packed[i + 3 * grid_stride];
        sum += sum_of<Acc>(a) + sum_of<Acc>(b);
        sum += sum_of<Acc>(c) + sum_of<Acc>(d);
    }
    for (; i < packed.packs; i += grid_stride)
        sum += sum_of<Acc>(packed[i]);
    sum += loose_ends<Acc>(in, n, packed, id);

    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}
