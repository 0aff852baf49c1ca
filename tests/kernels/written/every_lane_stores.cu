__global__ void k(const int *in, int *out, int n) {
    __shared__ int w[32];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    int v = i < n ? in[i] : 0;
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
    w[t / 32] = v;
    if (t == 0) {
        int s = 0;
        for (int k = 0; k < blockDim.x / 32; k++) s += w[k];
        out[blockIdx.x] = s;
    }
}
