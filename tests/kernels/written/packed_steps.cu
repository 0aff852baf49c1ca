__global__ void packed_steps(int *values, int *sums)
{
    extern __shared__ int cell[];
    unsigned int me = threadIdx.x;
    unsigned int i = blockIdx.x*blockDim.x + threadIdx.x;
    cell[me] = values[i];
    __syncthreads();
    for (unsigned int s=1; s < blockDim.x; s *= 2) {
        int mine = 2 * s * me;
        if (mine < blockDim.x) {
            cell[mine] += cell[mine + s];
        }
        __syncthreads();
    }
    if (me == 0) sums[blockIdx.x] = cell[0];
}
