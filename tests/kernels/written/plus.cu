__global__ void plus(const float *in, float *sum, int n)
{
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&total, in[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        *sum = *sum + total;
}
