__global__ void chunk_ceil(const int *in, int *out, int n)
{
    int chunk = (n + gridDim.x - 1) / gridDim.x, first = blockIdx.x * chunk;
    int end = min(first + chunk, n), v = 0;
    for (int i = first + threadIdx.x; i < end; i += blockDim.x) v += in[i];
    atomicAdd(out, v);
}
