/* key_fixed: an atomic addition per element, of an integer.
 *
 * Sums of integers do not depend on the order. So each element becomes a multiple of 2^-32, a
 * fixed-point number, and these are added: any order, and so every run, gives the same bits. The
 * block that finishes last makes floats of the sums.
 *
 * Still wasted: queues, as in key_atomic. And precision: bits of an element below 2^-32 are lost,
 * and a sum of 2^31 overflows. `exact` finds the exponents of all elements first, and takes a unit
 * and as many words as they need. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void key_fixed(In in, const unsigned *key, Acc *out, size_t n, unsigned keys,
                          unsigned long long *word, unsigned *ticket)
{
    const double unit = 1.0 / 4294967296.0; /* 2^-32 */
    size_t grid_stride = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += grid_stride)
        atomicAdd(word + key[i], (unsigned long long)__double2ll_rn(double(in[i]) / unit));

    __threadfence();
    __syncthreads();
    bool is_last = threadIdx.x == 0 && atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    if (!__syncthreads_or(is_last))
        return;
    __threadfence();
    for (unsigned k = threadIdx.x; k < keys; k += blockDim.x)
        out[k] = Acc(double((long long)word[k]) * unit);
}
