__global__ void times_bool(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = in[i] * (i < n);
    atomicAdd(out, v);
}
