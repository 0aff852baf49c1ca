__global__ void oddwarps(const float *in, float *out, int n)
{
    __shared__ float w[32];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    float v = i < n ? in[i] : 0.0f;
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffff, v, d);
    if (tid % 32 == 0) w[tid / 32] = v;
    __syncthreads();
    if (tid == 0) {
        int k = blockDim.x / 32;
        if (k % 2 == 1 && k > 1) { w[0] += w[k - 1]; k--; }
        while (k > 1) { k /= 2; for (int j = 0; j < k; j++) w[j] += w[j + k]; }
        out[blockIdx.x] = w[0];
    }
}
