__global__ void hillis_steele(const float *in, float *out, int n)
{
    extern __shared__ float temp[];
    int tid = threadIdx.x, m = blockDim.x, i = blockIdx.x * m + tid, pout = 0, pin = 1;
    temp[pout * m + tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < m; offset *= 2) {
        pout = 1 - pout;
        pin = 1 - pout;
        if (tid >= offset) temp[pout * m + tid] = temp[pin * m + tid] + temp[pin * m + tid - offset];
        else temp[pout * m + tid] = temp[pin * m + tid];
        __syncthreads();
    }
    if (tid == m - 1) out[blockIdx.x] = temp[pout * m + tid];
}
