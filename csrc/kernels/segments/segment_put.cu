/* segment_put: copies the sums of segment_runs to the caller's array, if all ids are right.
 *
 * If an id is out of range, nothing may be written to that array. This is only known after
 * segment_runs has read all ids. If the ids are not sorted, other kernels add up. */
#include "parts/segments.h"

template <typename T> __device__ __forceinline__ void copy_sums(const gr_segment_job &of)
{
    char *to = static_cast<char *>(const_cast<void *>(of.out.base));
    size_t grid = (size_t)gridDim.x * blockDim.x;
    for (size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x; k < of.segments; k += grid)
        *reinterpret_cast<T *>(to + (int64_t)k * of.out.row_step) =
            reinterpret_cast<const T *>(of.staged)[k];
}

template <typename In, typename Word> __global__ void segment_put(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    if (of.state->bad || of.state->unsorted)
        return;
    switch (of.sums.bytes) {
    case 1: return copy_sums<uint8_t>(of);
    case 2: return copy_sums<uint16_t>(of);
    case 4: return copy_sums<uint32_t>(of);
    default: return copy_sums<uint64_t>(of);
    }
}
