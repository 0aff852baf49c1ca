// Wrong: a __syncthreads() is missing at the end of the step, between line 12 and line 11.
__global__ void tree(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (int stride = 1; stride < blockDim.x; stride *= 2) {
        int index = 2 * stride * tid;
        if (index < blockDim.x) {
            float other = s[index + stride];
            s[index] += other;
        }
    }
    if (tid == 0)
        out[blockIdx.x] = s[0];
}
