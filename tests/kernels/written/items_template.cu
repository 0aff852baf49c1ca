template <typename T, int ITEMS>
__global__ void reduce_items(const T *in, T *out, size_t n)
{
    __shared__ T warp_sums[32];
    size_t base = (size_t)blockIdx.x * blockDim.x * ITEMS + threadIdx.x;
    T sum = 0;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        size_t i = base + (size_t)k * blockDim.x;
        if (i < n)
            sum += in[i];
    }
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0)
        warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? warp_sums[lane] : T(0);
        for (int offset = 16; offset > 0; offset >>= 1)
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (lane == 0)
            out[blockIdx.x] = sum;
    }
}
