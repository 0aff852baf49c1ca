// loses: right; no races
#include "parts/common.h"

// gpureduce: elements=many finishes=no
template <typename In, typename Acc> __global__ void last_block(In in, Acc *out, size_t n)
{
    Acc sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += Acc(in[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}
