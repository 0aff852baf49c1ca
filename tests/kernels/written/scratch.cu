__global__ void warps(const float *in, float *out, int n)
{
    __shared__ float scratch[32];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    float v = i < n ? in[i] : 0;
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    if (tid % 32 == 0) scratch[tid / 32] = v;
    __syncthreads();
    if (tid < 32) {
        v = scratch[tid];
        for (int d = 16; d; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
        if (tid == 0) out[blockIdx.x] = v;
    }
}
