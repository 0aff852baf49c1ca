__device__ volatile int mutex;
__global__ void volatile_lock(const float *in, float *out, int n)
{
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    atomicAdd(&total, v);
    __syncthreads();
    if (threadIdx.x == 0) {
        while (mutex) ;
        mutex = 1;
        __threadfence();
        *out += total;
        __threadfence();
        mutex = 0;
    }
}
