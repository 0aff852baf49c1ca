/* key_warp: the lanes of a warp that have one key add up first.
 *
 * The atomics of key_atomic queue for the addresses of frequent keys. Here a warp makes one atomic
 * for each of its different keys. In each turn, the first lane that is left broadcasts its key. The
 * lanes that have this key add up by shuffles, and are done.
 *
 * Still wasted: a turn of the loop per different key. With many keys that is a turn per lane. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void key_warp(In in, const unsigned *key, Acc *out, size_t n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned lane = threadIdx.x % 32, mine = i < n ? key[i] : 0;
    Acc value = i < n ? Acc(in[i]) : Acc(0);
    unsigned left = __ballot_sync(0xffffffffu, i < n);

    while (left) {
        unsigned first = (unsigned)__ffs((int)left) - 1;
        unsigned named = __shfl_sync(0xffffffffu, mine, (int)first);
        bool shares = i < n && mine == named;
        Acc sum = warp_sum(shares ? value : Acc(0));
        if (lane == 0)
            atomicAdd(out + named, sum);
        left &= ~__ballot_sync(0xffffffffu, shares);
    }
}
