#define N 256
#define T float
#define tid threadIdx.x
#define lane (threadIdx.x & 31)
#define warp (threadIdx.x >> 5)
#define block blockDim.x
#define in input
#define THREADS N
__global__ void mm(const T *in, T *out, int n)
{
    __shared__ T s[N];
    int gid = blockIdx.x * block + tid;
    s[tid] = gid < n ? in[gid] : 0;
    __syncthreads();
    if (lane == 0 && warp == 0) { T t = 0; for (int k = 0; k < block; k++) t += s[k]; out[blockIdx.x] = t; }
}
