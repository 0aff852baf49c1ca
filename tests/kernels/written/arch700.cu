__device__ float warp_sum(float v)
{
#if __CUDA_ARCH__ >= 700
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
#elif defined(__CUDA_ARCH__)
#error "needs Volta"
#endif
    return v;
}
__global__ void a7(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = warp_sum(i < n ? in[i] : 0);
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
