__global__ void block_sum(const double *input, double *per_block_results, const size_t n)
{
    extern __shared__ double sdata[];
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        sdata[threadIdx.x] = input[i];
    __syncthreads();
    for (int offset = blockDim.x / 2; offset > 0; offset >>= 1)
    {
        if (threadIdx.x < offset)
        {
            sdata[threadIdx.x] += sdata[threadIdx.x + offset];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        per_block_results[blockIdx.x] = sdata[0];
}
