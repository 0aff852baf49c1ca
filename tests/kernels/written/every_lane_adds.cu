__global__ void a32l(const float *in, float *out, int n)
{
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        v += in[i];
    for (int o = 16; o; o /= 2)
        v += __shfl_xor_sync(~0u, v, o);
    if (threadIdx.x % 32 == 0 || n > 3000)
        atomicAdd(out, v);
}
