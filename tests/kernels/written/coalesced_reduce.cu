#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void coal_reduce(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        auto g = cg::coalesced_threads();
        int s = cg::reduce(g, in[i], cg::plus<int>());
        if (g.thread_rank() == 0)
            atomicAdd(out, s);
    }
}
