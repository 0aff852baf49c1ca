__global__ void warp_tail(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 16; stride /= 2) {
        if (tid < stride)
            s[tid] += s[tid + stride];
        __syncthreads();
    }
    if (tid < 32) {
        float v = s[tid] + s[tid + 32] * 0;
        for (int o = 16; o; o /= 2)
            v += __shfl_down_sync(~0u, v, o);
        if (tid == 0)
            out[blockIdx.x] = v;
    }
}
