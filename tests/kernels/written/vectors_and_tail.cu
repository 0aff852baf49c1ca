__global__ void vec_tail(const float4 *in, float *out, int n)
{
    float s = 0;
    int gid = blockIdx.x * blockDim.x + threadIdx.x;
    int step = blockDim.x * gridDim.x;
    for (int i = gid; i < (n >> 2); i += step) {
        float4 q = in[i];
        s += q.x + q.y + q.z + q.w;
    }
    const float *rest = (const float *)in;
    for (int i = (n & ~3) + gid; i < n; i += step) s += rest[i];
    atomicAdd(out, s);
}
