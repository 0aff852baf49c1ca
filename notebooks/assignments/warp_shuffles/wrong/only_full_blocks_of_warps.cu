// loses: right; no races
// gpureduce: elements=many shared=warp
template <typename In, typename Acc> __global__ void warp_shuffles(In in, Acc *out, size_t n)
{
    Acc *of_warp = shared_array<Acc>();
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Acc sum = 0;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        sum += Acc(in[i]);
    for (unsigned offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0)
        of_warp[warp] = sum;
    __syncthreads();
    if (warp > 0)
        return;
    sum = of_warp[lane];
    for (unsigned offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0)
        out[blockIdx.x] = sum;
}
