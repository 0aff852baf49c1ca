/* redux: one instruction adds up a warp of 32-bit integers.
 *
 * warp_shfl needs five shuffles and five adds for a warp. Since compute capability 8.0
 * `__reduce_add_sync` does it in one instruction, for 32-bit integers only.
 *
 * Still wasted: nothing in the tree; the time goes into the loads. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void redux(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + tid; i < n; i += grid_stride)
        sum += Acc(in[i]);

    sum = __reduce_add_sync(0xffffffffu, sum);
    if (lane == 0)
        partial[warp] = sum;
    __syncthreads();

    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? partial[lane] : Acc(0);
        sum = __reduce_add_sync(0xffffffffu, sum);
        if (lane == 0)
            out[blockIdx.x] = sum;
    }
}
