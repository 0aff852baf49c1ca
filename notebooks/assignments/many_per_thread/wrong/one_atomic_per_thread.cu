// loses: forbid atomicAdd; block_barriers >= 1 per block
// gpureduce: elements=many
template <typename In, typename Acc> __global__ void many_per_thread(In in, Acc *out, size_t n)
{
    Acc sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += Acc(in[i]);
    atomicAdd(&out[blockIdx.x], sum);
}
