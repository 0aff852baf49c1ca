/* Right for powers of two: a helper for blocks and tiles, as in the blog. */
#include <cooperative_groups.h>
using namespace cooperative_groups;

__device__ int sum_of(thread_group g, int *temp, int value)
{
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        temp[lane] = value;
        g.sync();
        if (lane < i)
            value += temp[lane + i];
        g.sync();
    }
    return value;
}

__global__ void by_groups(int *sum, int *input, int n)
{
    extern __shared__ int temp[];
    int mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        mine += input[i];
    auto tile = tiled_partition<32>(this_thread_block());
    mine = sum_of(tile, temp + threadIdx.x / 32 * 32, mine);
    this_thread_block().sync();
    mine = sum_of(this_thread_block(), temp, tile.thread_rank() ? 0 : mine);
    if (threadIdx.x == 0)
        atomicAdd(sum, mine);
}
