__global__ void in_float(const int *in, int *out, int n)
{
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        sum += in[i];
    atomicAdd(out, (int)sum);
}
