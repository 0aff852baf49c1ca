// loses: block_barriers <= 2 per block; shared_load_lanes <= 1.5 per element; shuffles >= 0.1 per element
template <typename In, typename Acc>
__global__ void prefix_sums(In in, Acc *out, size_t n, Acc *work)
{
    Acc *entry = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    Acc sum = i < n ? Acc(in[i]) : Acc(0);
    entry[tid] = sum;
    __syncthreads();
    for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
        if (tid >= distance)
            sum += entry[tid - distance];
        __syncthreads();
        entry[tid] = sum;
        __syncthreads();
    }
    if (i < n)
        out[i] = sum;
    if (tid == blockDim.x - 1)
        work[blockIdx.x] = sum;
}
