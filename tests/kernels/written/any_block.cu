__global__ void any_block(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    unsigned tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0.0f;
    for (unsigned m = blockDim.x; m > 1;) {
        unsigned h = (m + 1) / 2;
        __syncthreads();
        if (tid < m / 2)
            s[tid] += s[tid + h];
        m = h;
    }
    if (tid == 0)
        out[blockIdx.x] = s[0];
}
