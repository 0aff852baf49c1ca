__global__ void synced_tail(const int *in, int *out, int n)
{
    extern __shared__ int s[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + tid;
    s[tid] = (i < n ? in[i] : 0) + (i + blockDim.x < n ? in[i + blockDim.x] : 0);
    __syncthreads();
    for (int d = blockDim.x / 2; d > 32; d >>= 1) {
        if (tid < d) s[tid] += s[tid + d];
        __syncthreads();
    }
    if (tid < 32) {
        int v = s[tid] + s[tid + 32]; __syncwarp();
        s[tid] = v; __syncwarp();
        v += s[tid + 16]; __syncwarp(); s[tid] = v; __syncwarp();
        v += s[tid + 8]; __syncwarp(); s[tid] = v; __syncwarp();
        v += s[tid + 4]; __syncwarp(); s[tid] = v; __syncwarp();
        v += s[tid + 2]; __syncwarp(); s[tid] = v; __syncwarp();
        v += s[tid + 1]; __syncwarp(); s[tid] = v;
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
