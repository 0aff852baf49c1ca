template <typename T> struct BlockReduce {
    __device__ static T warp(T v)
    {
        for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
        return v;
    }
    __device__ static T sum(T v)
    {
        __shared__ T partial[32];
        v = warp(v);
        if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
        __syncthreads();
        v = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : T(0);
        return threadIdx.x < 32 ? warp(v) : T(0);
    }
};
template <typename T> __global__ void struct_reduce(const T *in, T *out, int n)
{
    T v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    v = BlockReduce<T>::sum(v);
    if (threadIdx.x == 0) out[blockIdx.x] = v;
}
