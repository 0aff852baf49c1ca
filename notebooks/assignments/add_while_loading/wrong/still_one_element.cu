// loses: block_barriers <= 0.03 per element; busiest_warp_requests == 2
template <typename In, typename Acc> __global__ void add_while_loading(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();
    for (unsigned stride = 512; stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
