__global__ void two_halves(const int *in, int *out, int n)
{
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        sum += in[i];
        if (i + blockDim.x < n)
            sum += in[i + blockDim.x];
    }
    atomicAdd(&total, sum);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}
