__global__ void l128(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 64; d >>= 1) {
        if (tid < d) s[tid] += s[tid + d];
        __syncthreads();
    }
    if (tid < 64) s[tid] += s[tid + 64];
    __syncthreads();
    if (tid == 0) { float t = 0; for (int k = 0; k < 64; k++) t += s[k]; out[blockIdx.x] = t; }
}
