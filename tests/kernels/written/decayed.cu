__device__ void lastWarp(volatile float *s, int t)
{
    s[t] += s[t + 32]; s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1];
}
#define BLOCK_SIZE 256
__global__ void textbook(const float *in, float *out, int n)
{
    __shared__ float sdata[BLOCK_SIZE];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    float *p = sdata;
    p[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 32; s >>= 1) {
        if (tid < s) p[tid] += p[tid + s];
        __syncthreads();
    }
    if (tid < 32) lastWarp(sdata, tid);
    if (tid == 0) out[blockIdx.x] = sdata[0];
}
