#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(const float *in, float *partial, float *out, int n) {
    cg::grid_group grid = cg::this_grid();
    extern __shared__ float s[];
    int t = threadIdx.x;
    float v = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) v += in[i];
    s[t] = v;
    __syncthreads();
    for (int k = 512; k > 0; k /= 2) { if (t < k && t + k < blockDim.x) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) { partial[blockIdx.x] = s[0]; grid.sync(); }
    if (grid.thread_rank() == 0) {
        float r = 0;
        for (int b = 0; b < gridDim.x; b++) r += partial[b];
        *out = r;
    }
}
