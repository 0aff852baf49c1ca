#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void group_branch(const int *in, int *out, int n)
{
    __shared__ int w[32];
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<32>(block);
    int v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
    if (tile.thread_rank() == 0) {
        w[threadIdx.x / 32] = v;
        block.sync();
    }
    if (block.thread_rank() == 0) {
        int t = 0;
        for (int k = 0; k < blockDim.x / 32; k++) t += w[k];
        out[blockIdx.x] = t;
    }
}
