__device__ volatile unsigned arrived;
__device__ float partial[65536];
__global__ void volatile_ticket(const float *in, float *out, int n)
{
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    atomicAdd(&total, v);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = total;
        __threadfence();
        unsigned t = arrived;
        arrived = t + 1;
        if (t == gridDim.x - 1) {
            __threadfence();
            float sum = 0;
            for (int b = 0; b < gridDim.x; b++) sum += partial[b];
            out[0] = sum;
            arrived = 0;
        }
    }
}
