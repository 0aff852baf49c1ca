__global__ void dsum(const float *x, double *partials, int N, int numBlocks, int threadsPerBlock)
{
    extern __shared__ double cache[];
    int tid = threadIdx.x;
    double local = 0.0;
    for (int i = blockIdx.x * threadsPerBlock + tid; i < N; i += numBlocks * threadsPerBlock) local += x[i];
    cache[tid] = local;
    __syncthreads();
    if (tid == 0) {
        for (int i = 1; i < threadsPerBlock; i++) local += cache[i];
        partials[blockIdx.x] = local;
    }
}
