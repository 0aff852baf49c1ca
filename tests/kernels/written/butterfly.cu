#define FULL_MASK 0xffffffff
__inline__ __device__ int warpAllReduceSum(int val)
{
    for (int mask = warpSize / 2; mask > 0; mask /= 2)
        val += __shfl_xor_sync(FULL_MASK, val, mask);
    return val;
}
__global__ void butterfly(const int *in, int *out, int N)
{
    __shared__ int shared[32];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += blockDim.x * gridDim.x)
        sum += in[i];
    int lane = threadIdx.x & 31, wid = threadIdx.x >> 5;
    sum = warpAllReduceSum(sum);
    if (lane == 0) shared[wid] = sum;
    __syncthreads();
    sum = (lane < (blockDim.x >> 5)) ? shared[lane] : 0;
    sum = warpAllReduceSum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
