/* segment_largest: finds the largest id.
 *
 * Ids are compared as signed numbers. With their sign bits flipped, comparing them as unsigned
 * numbers gives the same order, and atomicMax() can start from 0. */
#include "parts/segments.h"

template <typename In, typename Word> __global__ void segment_largest(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    size_t grid = (size_t)gridDim.x * blockDim.x;
    unsigned long long most = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < of.rows; i += grid) {
        unsigned long long id = index_at(of.index, i) ^ 1ull << 63;
        most = id > most ? id : most;
    }
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        unsigned long long other = __shfl_xor_sync(0xffffffffu, most, offset);
        most = other > most ? other : most;
    }
    if (threadIdx.x % 32 == 0)
        atomicMax(reinterpret_cast<unsigned long long *>(&of.state->largest), most);
}
