__global__ void all_threads(const float *in, float *out, int n, int num_threads)
{
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int i = id; i < n; i += num_threads)
        sum += in[i];
    atomicAdd(out, sum);
}
