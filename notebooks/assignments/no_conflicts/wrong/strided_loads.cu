// loses: global_load_sectors <= 1.05 times the least
template <typename In, typename Acc> __global__ void no_conflicts(In in, Acc *out, size_t n)
{
    // gpureduce: elements=1
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    size_t j = size_t(tid) * gridDim.x + blockIdx.x;
    partial[tid] = j < n ? Acc(in[j]) : Acc(0);
    __syncthreads();
    for (unsigned stride = 512; stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
