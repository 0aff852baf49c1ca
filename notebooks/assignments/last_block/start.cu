#include "parts/common.h"

// Each block leaves its sum in work[]. Let the block that finishes last add them up, so that one launch is enough:
// each block draws a ticket, and leaves it at 0 at the end. The sum goes to *out.
// gpureduce: elements=many finishes=yes scratch=block
template <typename In, typename Acc> __global__ void last_block(In in, Acc *out, size_t n, Acc *work, unsigned *ticket)
{
    Acc sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += Acc(in[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        work[blockIdx.x] = sum;
    // your ticket
}
