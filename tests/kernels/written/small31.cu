__global__ void small31(const int *a, int *b, int N)
{
    __shared__ int s[31];
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = 0;
    if (i < N) v = a[i];
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) { int t = 0; for (int w = 0; w < blockDim.x / 32; w++) t += s[w]; b[blockIdx.x] = t; }
}
