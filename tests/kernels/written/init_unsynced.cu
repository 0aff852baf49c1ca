__global__ void initnosync(const int *in, int *out, int n)
{
    __shared__ int total;
    total = 0;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&total, in[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(out, total);
}
