__device__ volatile float partial[65536];
__global__ void volatile_no_ticket(const float *in, float *out, int n)
{
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    atomicAdd(&total, v);
    __syncthreads();
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
    __threadfence();
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        float t = 0;
        for (int b = 0; b < gridDim.x; b++) t += partial[b];
        out[0] = t;
    }
}
