__device__ float add4(float4 v)
{
    return v.x + v.y + v.z + v.w;
}
__global__ void by_value(const float *in, float *out, int n)
{
    __shared__ float warps[32];
    const float4 *in4 = (const float4 *)in;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += gridDim.x * blockDim.x)
        sum += add4(in4[i]);
    if (blockIdx.x == 0 && threadIdx.x < n % 4)
        sum += in[n / 4 * 4 + threadIdx.x];
    for (int d = 16; d > 0; d /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; w++) sum += warps[w];
        out[blockIdx.x] = sum;
    }
}
