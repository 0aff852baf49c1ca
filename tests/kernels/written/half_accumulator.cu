#include <cuda_fp16.h>
__global__ void half_acc(const __half *in, float *out, int n)
{
    __half sum = __float2half(0.0f);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum = __hadd(sum, in[i]);
    atomicAdd(out, __half2float(sum));
}
