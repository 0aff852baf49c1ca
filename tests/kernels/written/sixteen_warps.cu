__global__ void sixteen_warps(const float *in, float *out, int n)
{
    __shared__ float warp_sums[16];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        v += in[i];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float t = 0;
        for (int w = 0; w < (blockDim.x + 31) / 32; w++) t += warp_sums[w];
        out[blockIdx.x] = t;
    }
}
