__device__ unsigned int count = 0;
__shared__ bool isLastBlockDone;
__device__ float calculatePartialSum(const float *array, unsigned int N)
{
    __shared__ float part[1024];
    float s = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x)
        s += array[i];
    part[threadIdx.x] = s;
    __syncthreads();
    float total = 0;
    if (threadIdx.x == 0)
        for (unsigned t = 0; t < blockDim.x; t++)
            total += part[t];
    return total;
}
__device__ float calculateTotalSum(volatile float *result)
{
    float total = 0;
    if (threadIdx.x == 0)
        for (unsigned b = 0; b < gridDim.x; b++)
            total += result[b];
    return total;
}
__global__ void sum(const float *array, unsigned int N, volatile float *result)
{
    // Each block sums a subset of the input array.
    float partialSum = calculatePartialSum(array, N);
    if (threadIdx.x == 0) {
        // Thread 0 of each block stores the partial sum to global memory.
        result[blockIdx.x] = partialSum;
        // Thread 0 makes sure that its result is visible to all other threads.
        __threadfence();
        // Thread 0 signals that it is done.
        unsigned int value = atomicInc(&count, gridDim.x);
        isLastBlockDone = (value == (gridDim.x - 1));
    }
    // Synchronize to make sure that each thread reads the correct value of isLastBlockDone.
    __syncthreads();
    if (isLastBlockDone) {
        // The last block sums the partial sums stored in result[0 .. gridDim.x-1]
        float totalSum = calculateTotalSum(result);
        if (threadIdx.x == 0) {
            // Thread 0 of last block stores the total sum to global memory and resets count.
            result[0] = totalSum;
            count = 0;
        }
    }
}
