#define THREADS 256
#define EACH 4
__global__ void coarse(float* from, float* to) {
    __shared__ float cell[THREADS];
    unsigned int start = EACH*2*blockDim.x*blockIdx.x;
    unsigned int i = start + threadIdx.x;
    unsigned int me = threadIdx.x;
    float sum = from[i];
    for(unsigned int tile = 1; tile < EACH*2; ++tile) {
        sum += from[i + tile*THREADS];
    }
    cell[me] = sum;
    for (unsigned int stride = blockDim.x/2; stride >= 1; stride /= 2) {
        __syncthreads();
        if (me < stride) {
            cell[me] += cell[me + stride];
        }
    }
    if (me == 0) {
        atomicAdd(to, cell[0]);
    }
}
