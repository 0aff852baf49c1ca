__global__ void mean(const unsigned char *img, float *out, int n)
{
    extern __shared__ float sd[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    sd[threadIdx.x] = i < n ? (float)img[i] : 0.0f;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k) sd[threadIdx.x] += sd[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sd[0];
}
