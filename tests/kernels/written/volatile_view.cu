__device__ unsigned int done = 0;
__global__ void sum(const float *x, float *partial, float *result, int n) {
    __shared__ float s[1024];
    __shared__ bool last;
    int t = threadIdx.x;
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) v += x[i];
    s[t] = v;
    __syncthreads();
    if (t == 0) {
        float b = 0;
        for (int k = 0; k < blockDim.x; k++) b += s[k];
        partial[blockIdx.x] = b;
        __threadfence();
        last = atomicAdd(&done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        float total = 0;
        volatile float *p = partial;
        for (int k = 0; k < gridDim.x; k++) total += p[k];
        *result = total;
        done = 0;
    }
}
