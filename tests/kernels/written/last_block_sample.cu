// Right: as in NVIDIA's guide, a fence stands before the atomic, and none after it.
__device__ unsigned int count = 0;
__shared__ bool isLastBlockDone;
__global__ void sum(const float *array, unsigned int N, volatile float *partial, float *result)
{
    __shared__ float s[1024];
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < N ? array[i] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (unsigned k = 0; k < blockDim.x; k++)
            total += s[k];
        partial[blockIdx.x] = total;
        __threadfence();
        unsigned int value = atomicInc(&count, gridDim.x - 1);
        isLastBlockDone = (value == (gridDim.x - 1));
    }
    __syncthreads();
    if (isLastBlockDone && threadIdx.x == 0) {
        float total = 0;
        for (unsigned k = 0; k < gridDim.x; k++)
            total += partial[k];
        result[0] = total;
    }
}
