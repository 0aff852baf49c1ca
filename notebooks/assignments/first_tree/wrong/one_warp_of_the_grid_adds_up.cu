// loses: busiest_warp_requests == 1
template <typename In, typename Acc> __global__ void first_tree(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    Acc sum = 0;
    if (blockIdx.x == 0 && tid < 32)
        for (size_t i = tid; i < n; i += 32)
            sum += Acc(in[i]);
    for (unsigned offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    partial[tid] = sum;
    __syncthreads();
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
