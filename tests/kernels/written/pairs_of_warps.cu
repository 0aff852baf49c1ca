// pairs of warps
__global__ void oddw(const float *in, float *out, int n)
{
    __shared__ float s[32];
    int tid = threadIdx.x, w = tid >> 5;
    int i = blockIdx.x * blockDim.x + tid;
    float v = i < n ? in[i] : 0;
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (tid % 32 == 0) s[w] = v;
    __syncthreads();
    if (tid < blockDim.x / 64) s[tid] += s[tid + blockDim.x / 64];
    __syncthreads();
    if (tid == 0) {
        float sum = 0;
        for (int k = 0; k < blockDim.x / 64; k++) sum += s[k];
        out[blockIdx.x] = sum;
    }
}
