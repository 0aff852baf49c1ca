// Harris, unrolled, blocks up to 512
__global__ void harris5(const int *g_idata, int *g_odata, unsigned int n)
{
    __shared__ int sdata[512];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? g_idata[i] : 0;
    __syncthreads();
    if (blockDim.x >= 512) { if (tid < 256) sdata[tid] += sdata[tid + 256]; __syncthreads(); }
    if (blockDim.x >= 256) { if (tid < 128) sdata[tid] += sdata[tid + 128]; __syncthreads(); }
    if (blockDim.x >= 128) { if (tid < 64) sdata[tid] += sdata[tid + 64]; __syncthreads(); }
    if (tid < 32) {
        int v = sdata[tid];
        if (blockDim.x >= 64) v += sdata[tid + 32];
        for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o);
        if (tid == 0) g_odata[blockIdx.x] = v;
    }
}
