#define VERSION 2
#if VERSION == 1
__global__ void sum(const float *a, float *b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(b, a[i]);
}
#elif VERSION == 2
__global__ void sum(const float *a, float *b, int n)
{
    __shared__ float s[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? a[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) b[blockIdx.x] = s[0];
}
#else
#error no version
#endif
