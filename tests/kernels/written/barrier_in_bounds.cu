__global__ void bounds(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + tid;
    if (i < n) {
        s[tid] = in[i];
        __syncthreads();
        for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
            if (tid < stride && i + stride < n)
                s[tid] += s[tid + stride];
            __syncthreads();
        }
        if (tid == 0)
            atomicAdd(out, s[0]);
    }
}
