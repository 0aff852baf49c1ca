/* key_sorted: a warp per key, for elements that are sorted by key.
 *
 * In sorted input the elements of a key lie one after another. A warp finds the first and the last
 * of them by binary search, adds them up in registers, and stores the sum. There is no atomic, and
 * the order of the additions is fixed: the same input gives the same bits in every run. The same
 * elements in another order may give other bits.
 *
 * Still wasted: the sort. And a warp works alone on a frequent key, however many elements it has.
 */
#include "parts/common.h"

/* The index of the first key that is at least `wanted`. */
__device__ __forceinline__ size_t first_of(const unsigned *key, size_t n, unsigned wanted)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (key[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

template <typename In, typename Acc>
__global__ void key_sorted(In in, const unsigned *key, Acc *out, size_t n, unsigned keys)
{
    unsigned lane = threadIdx.x % 32, warps = gridDim.x * blockDim.x / 32;

    for (unsigned k = (blockIdx.x * blockDim.x + threadIdx.x) / 32; k < keys; k += warps) {
        size_t begin = first_of(key, n, k), end = k + 1 < keys ? first_of(key, n, k + 1) : n;
        Acc sum = 0;
        for (size_t i = begin + lane; i < end; i += 32)
            sum += Acc(in[i]);
        sum = warp_sum(sum);
        if (lane == 0)
            out[k] = sum;
    }
}
