template <class T> struct SharedMemory { __device__ operator T *(); };
template <class T> __device__ inline SharedMemory<T>::operator T *()
{
    extern __shared__ int __smem[];
    return (T *)__smem;
}
__global__ void sum(const float *in, float *out, int n)
{
    float *s = SharedMemory<float>();
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    if (tid == 0) {
        float t = 0;
        for (int k = 0; k < blockDim.x; k++) t += s[k];
        out[blockIdx.x] = t;
    }
}
