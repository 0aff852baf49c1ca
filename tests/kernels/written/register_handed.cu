__global__ void handed(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int stride = 1; stride < blockDim.x; stride *= 2) {
        float t = 0;
        if (tid >= stride)
            t = s[tid - stride];
        s[tid] += t;
        __syncthreads();
    }
    if (tid == blockDim.x - 1)
        out[blockIdx.x] = s[tid];
}
