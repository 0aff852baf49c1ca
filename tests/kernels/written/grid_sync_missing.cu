#include <cooperative_groups.h>
using namespace cooperative_groups;
__global__ void grid_sync_missing(const float *in, float *out, float *partial, int n)
{
    grid_group grid = this_grid();
    thread_block block = this_thread_block();
    extern __shared__ float s[];
    float v = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) v += in[i];
    s[block.thread_rank()] = v;
    block.sync();
    if (block.thread_rank() == 0) {
        float t = 0;
        for (int k = 0; k < block.size(); k++) t += s[k];
        partial[blockIdx.x] = t;
    }
    block.sync();
    if (grid.thread_rank() == 0) {
        float t = 0;
        for (int b = 0; b < gridDim.x; b++) t += partial[b];
        *out = t;
    }
}
