__global__ void thread_start(const float *in, float *out, int n)
{
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        sum += in[i];
    atomicAdd(out, sum);
}
