__global__ void vpp(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    volatile float *w = s;
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    w[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 32; d /= 2) { if (tid < d) s[tid] += s[tid + d]; __syncthreads(); }
    if (tid < 32) {
        s[tid] += s[tid + 32]; s[tid] += s[tid + 16]; s[tid] += s[tid + 8]; s[tid] += s[tid + 4]; s[tid] += s[tid + 2]; s[tid] += s[tid + 1];
        if (tid == 0) out[blockIdx.x] = s[0];
    }
}
