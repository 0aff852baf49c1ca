__global__ void reduce_bs(float *g_in, float *g_out, int n, int blockSize)
{
    extern __shared__ float sm[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockSize + tid;
    sm[tid] = (i < n) ? g_in[i] : 0;
    __syncthreads();
    for (int s = blockSize / 2; s > 0; s >>= 1) {
        if (tid < s)
            sm[tid] += sm[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        g_out[blockIdx.x] = sm[0];
}
