// loses: block_barriers == 0
// gpureduce: elements=many finishes=yes shared=thread
template <typename In, typename Acc> __global__ void segments(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t first = n * blockIdx.x / gridDim.x, end = n * (blockIdx.x + 1) / gridDim.x;
    Acc sum = 0;
    for (size_t i = first + tid; i < end; i += blockDim.x)
        sum += Acc(in[i]);
    partial[tid] = sum;
    __syncthreads();
    for (unsigned stride = 512; stride > 0; stride /= 2) {
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        atomicAdd(out, partial[0]);
}
