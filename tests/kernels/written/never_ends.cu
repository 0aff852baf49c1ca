__global__ void divided(const int *in, int *out, int n)
{
    extern __shared__ int cell[];
    int me = threadIdx.x, at = blockIdx.x * blockDim.x + me;
    cell[me] = at < n ? in[at] : 0;
    __syncthreads();
    for (int step = 1; step != blockDim.x; step *= 2) {
        if (me % (2 * step) == 0 && me + step < blockDim.x)
            cell[me] += cell[me + step];
        __syncthreads();
    }
    if (me == 0)
        out[blockIdx.x] = cell[0];
}
