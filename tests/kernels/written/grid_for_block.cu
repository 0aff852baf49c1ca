__global__ void wrong_factor(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x, i = blockIdx.x * gridDim.x + tid;
    s[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (tid < d) s[tid] += s[tid + d];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
