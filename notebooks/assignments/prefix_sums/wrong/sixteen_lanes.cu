// loses: right
template <typename Acc> __device__ Acc of_warp(Acc sum)
{
    for (unsigned distance = 1; distance < 16; distance *= 2) {
        Acc below = __shfl_up_sync(0xffffffff, sum, distance);
        if (threadIdx.x % 32 >= distance)
            sum += below;
    }
    return sum;
}

template <typename In, typename Acc>
__global__ void prefix_sums(In in, Acc *out, size_t n, Acc *work)
{
    Acc *of_warps = shared_array<Acc>();
    unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32, warps = blockDim.x / 32;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    Acc sum = of_warp(i < n ? Acc(in[i]) : Acc(0));
    if (lane == 31)
        of_warps[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        Acc all = of_warp(lane < warps ? of_warps[lane] : Acc(0));
        if (lane < warps)
            of_warps[lane] = all;
    }
    __syncthreads();
    if (warp > 0)
        sum += of_warps[warp - 1];
    if (i < n)
        out[i] = sum;
    if (tid == blockDim.x - 1)
        work[blockIdx.x] = sum;
}
