__global__ void alike(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (int h = 512; h > 0; h >>= 1) {
        if (tid < h && tid + h < blockDim.x) s[tid] += s[tid + h];
        __syncthreads();
    }
    out[blockIdx.x] = s[0];
}
