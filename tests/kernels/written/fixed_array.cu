#define MOST 128
__global__ void fixed_array(int *values, int *sums, unsigned int n)
{
    __shared__ int cell[MOST];
    unsigned int me = threadIdx.x;
    int *own = values + blockIdx.x * blockDim.x;
    cell[me] = own[me];
    __syncthreads();
    if (blockDim.x >= 1024 && me < 512) cell[me] += cell[me + 512];
    __syncthreads();
    if (blockDim.x >= 512 && me < 256) cell[me] += cell[me + 256];
    __syncthreads();
    if (blockDim.x >= 256 && me < 128) cell[me] += cell[me + 128];
    __syncthreads();
    if (blockDim.x >= 128 && me < 64) cell[me] += cell[me + 64];
    __syncthreads();
    if (me < 32) {
        volatile int *vcell = cell;
        vcell[me] += vcell[me + 32];
        vcell[me] += vcell[me + 16];
        vcell[me] += vcell[me +  8];
        vcell[me] += vcell[me +  4];
        vcell[me] += vcell[me +  2];
        vcell[me] += vcell[me +  1];
    }
    if (me == 0) sums[blockIdx.x] = cell[0];
}
