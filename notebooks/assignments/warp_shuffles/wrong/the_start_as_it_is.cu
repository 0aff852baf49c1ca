// loses: shuffles >= 10 per block; block_barriers == 1 per block; shared_store_lanes <= 0.005 per element
// This cascade adds up the sums of its threads by a tree in shared memory. Let the lanes of each warp add up theirs
// by shuffles, and the first warp those of the warps: shared memory then holds one sum per warp.
// gpureduce: elements=many
template <typename In, typename Acc> __global__ void warp_shuffles(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    Acc sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + tid; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += Acc(in[i]);
    partial[tid] = sum;
    __syncthreads();
    for (unsigned stride = 512; stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
