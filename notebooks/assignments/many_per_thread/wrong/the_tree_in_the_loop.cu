// loses: block_barriers <= 0.01 per element
// gpureduce: elements=many
template <typename In, typename Acc> __global__ void many_per_thread(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    Acc sum = 0;
    for (size_t first = size_t(blockIdx.x) * blockDim.x; first < n; first += size_t(gridDim.x) * blockDim.x) {
        partial[tid] = first + tid < n ? Acc(in[first + tid]) : Acc(0);
        __syncthreads();
        for (unsigned stride = 512; stride > 0; stride /= 2) {
            if (tid < stride && tid + stride < blockDim.x)
                partial[tid] += partial[tid + stride];
            __syncthreads();
        }
        if (tid == 0)
            sum += partial[0];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = sum;
}
