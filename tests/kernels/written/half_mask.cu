__global__ void half_mask(const int *in, int *out, int n)
{
    int v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        v += in[i];
    for (int o = 16; o > 0; o >>= 1)
        v += __shfl_down_sync(0x0000ffff, v, o);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, v);
}
