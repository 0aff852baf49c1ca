// loses: atomics <= 1.2 per block; block_barriers <= 4 per block
#include "parts/common.h"

// gpureduce: elements=many finishes=yes scratch=block
template <typename In, typename Acc> __global__ void last_block(In in, Acc *out, size_t n, Acc *work, unsigned *ticket)
{
    __shared__ bool last;
    Acc sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += Acc(in[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        work[blockIdx.x] = sum;
    __threadfence();
    __syncthreads();
    unsigned all = gridDim.x * blockDim.x, drawn = atomicInc(ticket, all - 1);
    if (threadIdx.x == 0)
        last = false;
    __syncthreads();
    if (drawn == all - 1)
        last = true;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x)
        sum += work[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = sum;
}
