#include <cooperative_groups.h>
using namespace cooperative_groups;

__global__ void coal(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int v = in[i];
        coalesced_group active = coalesced_threads();
        for (int d = 1; d < active.size(); d *= 2) {
            int other = active.shfl_down(v, d);
            if (active.thread_rank() + d < active.size())
                v += other;
        }
        if (active.thread_rank() == 0)
            atomicAdd(out, v);
    }
}
