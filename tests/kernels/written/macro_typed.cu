// one kernel for each type
#define REDUCE(T)                                                        \
    __global__ void reduce_##T(const T *g_idata, T *g_odata, unsigned n) \
    {                                                                    \
        __shared__ T sdata[256];                                         \
        unsigned tid = threadIdx.x;                                      \
        T sum = 0;                                                       \
        for (unsigned i = blockIdx.x * blockDim.x + tid; i < n;          \
             i += gridDim.x * blockDim.x)                                \
            sum += g_idata[i];                                           \
        sdata[tid] = sum;                                                \
        __syncthreads();                                                 \
        for (unsigned s = 128; s > 0; s >>= 1) {                         \
            if (tid < s) sdata[tid] += sdata[tid + s];                   \
            __syncthreads();                                             \
        }                                                                \
        if (tid == 0) g_odata[blockIdx.x] = sdata[0];                    \
    }

REDUCE(float)
REDUCE(int)
