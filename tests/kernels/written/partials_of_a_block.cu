__device__ unsigned int done = 0;
__global__ void sum(const float *x, float *partial, float *result, int n) {
    __shared__ bool last;
    int t = threadIdx.x;
    __shared__ float s[1024];
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) v += x[i];
    s[t] = v;
    __syncthreads();
    for (int k = 512; k > 0; k /= 2) { if (t < k && t + k < blockDim.x) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicInc(&done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        __threadfence();
        s[t] = t < gridDim.x ? partial[t] : 0;
        __syncthreads();
        for (int k = 512; k > 0; k /= 2) { if (t < k && t + k < blockDim.x) s[t] += s[t + k]; __syncthreads(); }
        if (t == 0) result[0] = s[0];
    }
}
