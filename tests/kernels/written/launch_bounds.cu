__global__ void __launch_bounds__(256) lb(const float *in, float *out, int n)
{
    __shared__ float w[32];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    float v = i < n ? in[i] : 0.0f;
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if (tid % 32 == 0) w[tid / 32] = v;
    __syncthreads();
    v = (tid < blockDim.x / 32) ? w[tid] : 0;
    if (tid < 32) {
        for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
        if (tid == 0) out[blockIdx.x] = v;
    }
}
