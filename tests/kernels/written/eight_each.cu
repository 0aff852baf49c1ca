__global__ void eight_each (int *values, int *sums, unsigned int n)
{
    unsigned int me = threadIdx.x;
    unsigned int at = blockIdx.x * blockDim.x * 8 + threadIdx.x;
    int *own = values + blockIdx.x * blockDim.x * 8;
    if (at + 7 * blockDim.x < n)
    {
        int a1 = values[at];
        int a2 = values[at + blockDim.x];
        int a3 = values[at + 2 * blockDim.x];
        int a4 = values[at + 3 * blockDim.x];
        int b1 = values[at + 4 * blockDim.x];
        int b2 = values[at + 5 * blockDim.x];
        int b3 = values[at + 6 * blockDim.x];
        int b4 = values[at + 7 * blockDim.x];
        values[at] = a1 + a2 + a3 + a4 + b1 + b2 + b3 + b4;
    }
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 32; stride >>= 1)
    {
        if (me < stride)
        {
            own[me] += own[me + stride];
        }
        __syncthreads();
    }
    if (me < 32)
    {
        volatile int *cell = own;
        cell[me] += cell[me + 32];
        cell[me] += cell[me + 16];
        cell[me] += cell[me +  8];
        cell[me] += cell[me +  4];
        cell[me] += cell[me +  2];
        cell[me] += cell[me +  1];
    }
    if (me == 0) sums[blockIdx.x] = own[0];
}
