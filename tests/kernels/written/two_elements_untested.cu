__global__ void twosize(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + tid;
    s[tid] = in[i];
    if (i + blockDim.x < n) s[tid] += in[i + blockDim.x];
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (tid < d) s[tid] += s[tid + d];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
