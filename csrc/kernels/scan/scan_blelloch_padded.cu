/* scan_blelloch_padded: scan_blelloch with a gap after every 32 entries.
 *
 * In scan_blelloch the lanes of a warp access entries 2 * stride apart, which lie in few banks.
 * Here entry k has place k + k / 32 in shared memory: entries 32 apart lie in neighbouring banks.
 *
 * Still wasted: two block barriers for each doubling of the stride, most of them while few threads
 * work; and the time to compute places. */
#include "parts/common.h"

__device__ __forceinline__ unsigned place(unsigned k)
{
    return k + k / 32;
}

template <typename In, typename Acc>
__global__ void scan_blelloch_padded(In in, Acc *out, size_t n, Acc *work)
{
    Acc *entry = shared_array<Acc>();
    unsigned tid = threadIdx.x, size = 2 * blockDim.x;
    size_t first = (size_t)blockIdx.x * size;

    for (unsigned k = tid; k < size; k += blockDim.x)
        entry[place(k)] = first + k < n ? Acc(in[first + k]) : Acc(0);
    __syncthreads();

    for (unsigned stride = 1; stride < size; stride *= 2) {
        unsigned k = 2 * stride * (tid + 1) - 1;
        if (k < size)
            entry[place(k)] += entry[place(k - stride)];
        __syncthreads();
    }
    for (unsigned stride = first_stride(size) / 2; stride > 0; stride /= 2) {
        unsigned k = 2 * stride * (tid + 1) - 1;
        if (k + stride < size)
            entry[place(k + stride)] += entry[place(k)];
        __syncthreads();
    }

    for (unsigned k = tid; k < size; k += blockDim.x)
        if (first + k < n)
            out[first + k] = entry[place(k)];
    if (tid == 0)
        work[blockIdx.x] = entry[place(size - 1)];
}
