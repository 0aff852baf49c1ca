__global__ void mod_steps(int *values, int *sums)
{
    extern __shared__ int cell[];
    unsigned int me = threadIdx.x;
    unsigned int i = blockIdx.x*blockDim.x + threadIdx.x;
    cell[me] = values[i];
    __syncthreads();
    for (unsigned int s=1; s < blockDim.x; s *= 2) {
        if (me % (2*s) == 0) {
            cell[me] += cell[me + s];
        }
        __syncthreads();
    }
    if (me == 0) sums[blockIdx.x] = cell[0];
}
