#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void gridsum(const float *x, float *partial, int n)
{
    cg::grid_group grid = cg::this_grid();
    cg::thread_block block = cg::this_thread_block();
    extern __shared__ float sm[];
    float v = 0;
    for (size_t i = grid.thread_rank(); i < n; i += grid.size()) v += x[i];
    sm[block.thread_rank()] = v;
    cg::sync(block);
    for (int k = block.size() / 2; k > 0; k >>= 1) {
        if (block.thread_rank() < k) sm[block.thread_rank()] += sm[block.thread_rank() + k];
        cg::sync(block);
    }
    if (block.thread_rank() == 0) partial[blockIdx.x] = sm[0];
    cg::sync(grid);
    if (grid.thread_rank() == 0)
        for (int b = 1; b < gridDim.x; b++) partial[0] += partial[b];
}
