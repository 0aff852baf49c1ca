#define THREADS 1024
__global__ void one_block_shared(float* from, float* to) {
    __shared__ float cell[THREADS];
    unsigned int me = threadIdx.x;
    cell[me] = from[me] + from[me + THREADS];
    for (unsigned int stride = blockDim.x/2; stride >= 1; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride) {
            cell[me] += cell[me + stride];
        }
    }
    if (threadIdx.x == 0) {
        *to = cell[0];
    }
}
