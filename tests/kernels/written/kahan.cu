__global__ void kahan(const float *x, float *partial, size_t n)
{
    extern __shared__ float sh[];
    float s = 0.0f, c = 0.0f;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float y = x[i] - c;
        float t = s + y;
        c = (t - s) - y;
        s = t;
    }
    sh[threadIdx.x] = s;
    __syncthreads();
    for (unsigned k = blockDim.x >> 1; k; k >>= 1) {
        if (threadIdx.x < k) sh[threadIdx.x] += sh[threadIdx.x + k];
        __syncthreads();
    }
    if (!threadIdx.x) partial[blockIdx.x] = sh[0];
}
