#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Dynamic shared memory of a type that is a parameter of the kernel's template.
template <class T> struct Cells {
    __device__ inline operator T *()
    {
        extern __shared__ int bytes[];
        return (T *)bytes;
    }
};

template <class T, unsigned int THREADS, bool isPower> __global__ void tiles(T *from, T *to, unsigned int n)
{
    cg::thread_block block = cg::this_thread_block();
    T *cell = Cells<T>();
    unsigned int me = threadIdx.x, at = blockIdx.x * THREADS * (isPower ? 2 : 1) + me;
    T mine = 0;
    for (; at < n; at += THREADS * gridDim.x * (isPower ? 2 : 1)) {
        mine += from[at];
        if (isPower && at + THREADS < n)
            mine += from[at + THREADS];
    }
    cell[me] = mine;
    cg::sync(block);
    if (THREADS >= 512 && me < 256) cell[me] = mine = mine + cell[me + 256];
    cg::sync(block);
    if (THREADS >= 256 && me < 128) cell[me] = mine = mine + cell[me + 128];
    cg::sync(block);
    if (THREADS >= 128 && me < 64) cell[me] = mine = mine + cell[me + 64];
    cg::sync(block);
    auto tile = cg::tiled_partition<32>(block);
    if (block.thread_rank() < 32) {
        if (THREADS >= 64) mine += cell[me + 32];
        for (int lanes = tile.size() / 2; lanes > 0; lanes /= 2)
            mine += tile.shfl_down(mine, lanes);
    }
    if (block.thread_rank() == 0)
        to[blockIdx.x] = mine;
}
