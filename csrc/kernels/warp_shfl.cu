/* warp_shfl: registers and `__shfl_down_sync` instead of shared memory.
 *
 * cascade wrote every partial sum to shared memory and read it back. A shuffle reads another lane's
 * register directly: five shuffles add up a warp without memory or barriers. Shared memory only
 * passes one value per warp to the first warp, so there is one block barrier in all.
 *
 * Still wasted: loads of one element at a time. */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void warp_shfl(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    Acc sum = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + tid; i < n; i += grid_stride)
        sum += Acc(in[i]);

    for (unsigned offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (lane == 0)
        partial[warp] = sum;
    __syncthreads();

    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? partial[lane] : Acc(0);
        for (unsigned offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, offset);
        if (lane == 0)
            out[blockIdx.x] = sum;
    }
}
