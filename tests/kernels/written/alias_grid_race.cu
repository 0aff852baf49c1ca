__global__ void agr(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x;
    const int blocks = gridDim.x;
    float sum = 0;
    for (int base = blockIdx.x * blockDim.x; base < n; base += blockDim.x * blocks) {
        s[tid] = base + tid < n ? in[base + tid] : 0;
        __syncthreads();
        if (tid == 0) for (int k = 0; k < blockDim.x; k++) sum += s[k];
    }
    if (tid == 0) out[blockIdx.x] = sum;
}
