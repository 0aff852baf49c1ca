__device__ void add(float *out, float v) { atomicAdd(out, v); }
constexpr auto op = &add;
__global__ void sum(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        op(&out[0], in[i]);
}
