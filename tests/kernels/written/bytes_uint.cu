__global__ void brightness(const unsigned char *image, unsigned int *sum, int n)
{
    __shared__ unsigned int s[256];
    int tid = threadIdx.x;
    unsigned int mine = 0;
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x)
        mine += image[i];
    s[tid] = mine;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (tid < k) s[tid] += s[tid + k];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(sum, s[0]);
}
