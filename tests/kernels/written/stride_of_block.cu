__global__ void block_stride(const float *in, float *out, int n)
{
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x)
        sum += in[i];
    atomicAdd(out, sum);
}
