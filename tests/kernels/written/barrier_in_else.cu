__global__ void branches(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x,
        i = blockIdx.x * blockDim.x + tid;
    if (i < n) {
        s[tid] = in[i];
        __syncthreads();
    } else {
        s[tid] = 0;
        __syncthreads();
    }
    if (tid == 0) {
        float sum = 0;
        for (int k = 0; k < blockDim.x; k++) sum += s[k];
        out[blockIdx.x] = sum;
    }
}
