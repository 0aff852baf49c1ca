__global__ void one_block_in_place(float* from, float* to) {
    unsigned int i = 2*threadIdx.x;
    for (unsigned int stride = 1; stride <= blockDim.x; stride *= 2) {
        if (threadIdx.x % stride == 0) {
            from[i] += from[i + stride];
        }
        __syncthreads();
    }
    if(threadIdx.x == 0) {
        *to = from[0];
    }
}
