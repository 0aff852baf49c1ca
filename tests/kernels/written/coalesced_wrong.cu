#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void coal_w(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int v = in[i];
        auto g = cg::coalesced_threads();
        for (int d = g.size() / 2; d > 0; d /= 2)
            v += g.shfl_down(v, d);
        if (g.thread_rank() == 0)
            atomicAdd(out, v);
    }
}
