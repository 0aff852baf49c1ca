__global__ void init_one(const float *in, float *out, int n)
{
    __shared__ float s[32];
    int tid = threadIdx.x, lane = tid % 32, w = tid / 32;
    float v = 1;
    for (int i = blockIdx.x * blockDim.x + tid; i < n; i += blockDim.x * gridDim.x)
        v += in[i];
    for (int o = 16; o > 0; o /= 2)
        v += __shfl_down_sync(0xffffffff, v, o);
    if (lane == 0)
        s[w] = v;
    __syncthreads();
    if (tid < blockDim.x / 32) {
        v = s[lane];
        for (int o = 16; o > 0; o /= 2) {
            float t = __shfl_down_sync(__activemask(), v, o);
            if (lane + o < blockDim.x / 32) v += t;
        }
        if (tid == 0)
            out[blockIdx.x] = v;
    }
}
