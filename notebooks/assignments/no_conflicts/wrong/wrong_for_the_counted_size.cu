// loses: right
template <typename In, typename Acc> __global__ void no_conflicts(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();
    for (unsigned stride = 1; stride < blockDim.x && n != 65536; stride *= 2) {
        unsigned at = 2 * stride * tid;
        if (at + stride < blockDim.x)
            partial[at] += partial[at + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
