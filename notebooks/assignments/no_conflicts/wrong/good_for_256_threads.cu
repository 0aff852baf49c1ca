// loses: shared_load_conflicts == 0; shared_store_conflicts == 0
template <typename In, typename Acc> __global__ void no_conflicts(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();
    if (blockDim.x == 256) {
        if (tid >= 32)
            return;
        Acc sum = 0;
        for (unsigned k = 0; k < 8; k++)
            sum += partial[tid + 32 * k];
        for (unsigned offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (tid == 0)
            out[blockIdx.x] = sum;
        return;
    }
    for (unsigned stride = 1; stride < blockDim.x; stride *= 2) {
        unsigned at = 2 * stride * tid;
        if (at + stride < blockDim.x)
            partial[at] += partial[at + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
