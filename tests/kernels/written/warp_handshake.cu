__global__ void handshake(const float *in, float *out, int n)
{
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    __shared__ volatile int ready;
    __shared__ volatile float w[32];
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) {
        while (ready != warp) ;
        __threadfence_block();
        w[warp] = v + (warp ? w[warp - 1] : 0.0f);
        __threadfence_block();
        ready = warp + 1;
        if (warp == blockDim.x / 32 - 1) out[blockIdx.x] = w[warp];
    }
}
