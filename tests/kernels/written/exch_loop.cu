__global__ void exch_loop(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = in[i];
        while (v != 0.0f) {
            v += atomicExch(out, 0.0f);
            v = atomicExch(out, v);
        }
    }
}
