__global__ void blelloch_unsynced(const int *in, int *out, int n)
{
    extern __shared__ int temp[];
    int tid = threadIdx.x, offset = 1, i = blockIdx.x * blockDim.x + tid;
    temp[tid] = i < n ? in[i] : 0;
    for (int d = blockDim.x >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (tid < d) {
            int ai = offset * (2 * tid + 1) - 1, bi = offset * (2 * tid + 2) - 1;
            temp[bi] += temp[ai];
        }
        offset *= 2;
    }
    
    if (tid == blockDim.x - 1) out[blockIdx.x] = temp[tid];
}
