#define SMEMDIM 4
__inline__ __device__ int warpReduce(int localSum)
{
    localSum += __shfl_xor_sync(0xffffffff, localSum, 16);
    localSum += __shfl_xor_sync(0xffffffff, localSum, 8);
    localSum += __shfl_xor_sync(0xffffffff, localSum, 4);
    localSum += __shfl_xor_sync(0xffffffff, localSum, 2);
    localSum += __shfl_xor_sync(0xffffffff, localSum, 1);
    return localSum;
}
__global__ void reduceShfl (int *g_idata, int *g_odata, unsigned int n)
{
    // shared memory for each warp sum
    __shared__ int smem[SMEMDIM];
    // boundary check
    unsigned int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx >= n) return;
    // calculate lane index and warp index
    int laneIdx = threadIdx.x % warpSize;
    int warpIdx = threadIdx.x / warpSize;
    // blcok-wide warp reduce
    int localSum = warpReduce(g_idata[idx]);
    // save warp sum to shared memory
    if (laneIdx == 0) smem[warpIdx] = localSum;
    // block synchronization
    __syncthreads();
    // last warp reduce
    if (threadIdx.x < warpSize) localSum = (threadIdx.x < SMEMDIM) ? smem[laneIdx] : 0;
    if (warpIdx == 0) localSum = warpReduce(localSum);
    // write result for this block to global mem
    if (threadIdx.x == 0) g_odata[blockIdx.x] = localSum;
}
