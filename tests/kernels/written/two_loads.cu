__global__ void two_loads(int *values, int *sums)
{
    extern __shared__ int cell[];
    unsigned int me = threadIdx.x;
    unsigned int i = blockIdx.x*(blockDim.x*2) + threadIdx.x;
    cell[me] = values[i] + values[i+blockDim.x];
    __syncthreads();
    for (unsigned int s=blockDim.x/2; s>0; s>>=1) {
        if (me < s) {
            cell[me] += cell[me + s];
        }
        __syncthreads();
    }
    if (me == 0) sums[blockIdx.x] = cell[0];
}
