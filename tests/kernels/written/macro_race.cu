#define ADD(s) if (t < s) c[t] += c[t + s];
#define SYNC __syncthreads()
__global__ void m(const int *x, int *y, int n)
{
    __shared__ int c[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    c[t] = i < n ? x[i] : 0;
    SYNC;
    for (int k = blockDim.x >> 1; k; k >>= 1) { ADD(k) }
    SYNC;
    if (!t) y[blockIdx.x] = c[0];
}
