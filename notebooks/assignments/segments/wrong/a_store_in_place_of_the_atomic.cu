// loses: right; no races
// gpureduce: elements=many finishes=yes shared=none
template <typename In, typename Acc> __global__ void segments(In in, Acc *out, size_t n)
{
    size_t warps = size_t(gridDim.x) * blockDim.x / 32;
    size_t warp = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    size_t first = n * warp / warps, end = n * (warp + 1) / warps;
    unsigned lane = threadIdx.x % 32;
    Acc sum = 0;
    for (size_t i = first + lane; i < end; i += 32)
        sum += Acc(in[i]);
    for (unsigned offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0 && first < end)
        *out += sum;
}
