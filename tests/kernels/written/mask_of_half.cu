__global__ void mask_of_half(const int *in, int *out, int n)
{
    int v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    unsigned mask = threadIdx.x & 16 ? 0xffff0000 : 0x0000ffff;
    for (int o = 8; o > 0; o /= 2) v += __shfl_down_sync(mask, v, o, 16);
    if (threadIdx.x % 16 == 0) atomicAdd(out, v);
}
