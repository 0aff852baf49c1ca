__global__ void first_add_loop(const int *in, int *out, int n)
{
    extern __shared__ int s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + tid, gridSize = blockDim.x * 2 * gridDim.x;
    s[tid] = 0;
    while (i < n) {
        s[tid] += in[i] + in[i + blockDim.x];
        i += gridSize;
    }
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (tid < d) s[tid] += s[tid + d];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
