// loses: right; no races
// gpureduce: elements=many finishes=no
template <typename In, typename Acc> __global__ void segments(In in, Acc *out, size_t n)
{
    Acc sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += Acc(in[i]);
    for (unsigned offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&out[blockIdx.x], sum);
}
