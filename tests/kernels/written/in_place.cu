__global__ void in_place (int *values, int *sums, unsigned int n)
{
    unsigned int me = threadIdx.x;
    unsigned int at = blockIdx.x * blockDim.x + threadIdx.x;
    int *own = values + blockIdx.x * blockDim.x;
    if (at >= n) return;
    for (int stride = 1; stride < blockDim.x; stride *= 2)
    {
        if ((me % (2 * stride)) == 0)
        {
            own[me] += own[me + stride];
        }
        __syncthreads();
    }
    if (me == 0) sums[blockIdx.x] = own[0];
}
