#define DEF_TREE(NAME, TYPE, BARRIER)                                                   \
__global__ void NAME(const TYPE *in, TYPE *out, const int n)                            \
{                                                                                       \
    extern __shared__ TYPE sh_##NAME[];                                                 \
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;                               \
    sh_##NAME[t] = i < n ? in[i] : (TYPE)0;                                             \
    BARRIER;                                                                            \
    for (int k = blockDim.x / 2; k; k /= 2) {                                           \
        if (t < k) sh_##NAME[t] += sh_##NAME[t + k];                                    \
        __syncthreads();                                                                \
    }                                                                                   \
    if (t == 0) out[blockIdx.x] = sh_##NAME[0];                                         \
}
DEF_TREE(good, float, __syncthreads())
DEF_TREE(bad, float, )
