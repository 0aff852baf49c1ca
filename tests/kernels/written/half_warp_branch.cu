__global__ void hm(const float *in, float *out, int n)
{
    __shared__ float w[32];
    __shared__ float total;
    int t = threadIdx.x;
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += blockDim.x * gridDim.x) v += in[i];
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (t % 32 == 0) w[t / 32] = v;
    __syncthreads();
    if (t < blockDim.x / 32) {
        v = w[t];
        for (int d = blockDim.x / 64; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
        if (t == 0) total = v;
    }
    __syncthreads();
    if (t == 0) out[blockIdx.x] = total;
}
