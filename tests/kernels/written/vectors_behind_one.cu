__global__ void k(const float *in, float *out, int n) {
    float s = 0;
    int head = n > 0 ? 1 : 0;
    const float4 *v = (const float4 *)(in + head);
    int m = (n - head) / 4;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < m; i += gridDim.x * blockDim.x) {
        float4 x = v[i];
        s += x.x + x.y + x.z + x.w;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        for (int i = 0; i < head; i++) s += in[i];
        for (int i = head + 4 * m; i < n; i++) s += in[i];
    }
    atomicAdd(out, s);
}
