__global__ void loopb(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x;
    s[tid] = 0;
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x) {
        s[tid] += in[i];
        __syncthreads();
    }
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        __syncthreads();
        if (tid < k) s[tid] += s[tid + k];
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
