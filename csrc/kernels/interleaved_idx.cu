/* interleaved_idx: the same tree, with the active threads packed together.
 *
 * interleaved_mod spread its active lanes over all warps. Here thread `tid` works on element
 * `2 * stride * tid`, so the first threads are the active ones and whole warps become idle early.
 *
 * Still wasted: neighbouring lanes now access words 2 * stride apart. Shared memory has 32 banks of
 * 4 bytes; at stride 16 all lanes of a warp access one bank and are served one after another (bank
 * conflicts). */
#include "parts/common.h"

template <typename In, typename Acc> __global__ void interleaved_idx(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;

    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();

    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        unsigned index = 2 * stride * tid;
        if (index + stride < blockDim.x)
            partial[index] += partial[index + stride];
        __syncthreads();
    }

    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
