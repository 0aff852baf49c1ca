template <class T>
struct SharedMemory {
    __device__ inline operator T *()
    {
        extern __shared__ int __smem[];
        return (T *)__smem;
    }
};
template <class T>
__global__ void sum_class(T *g_in, T *g_out, unsigned int n)
{
    T *s = SharedMemory<T>();
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? g_in[i] : T(0);
    __syncthreads();
    for (unsigned d = blockDim.x / 2; d > 0; d >>= 1) {
        if (tid < d) s[tid] += s[tid + d];
        __syncthreads();
    }
    if (tid == 0) g_out[blockIdx.x] = s[0];
}
template __global__ void sum_class<float>(float *, float *, unsigned int);
