__global__ void sum(const float *in, float *out, int n)
{
    __shared__ float s[1024], r[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    if (blockDim.x > 256) {
        s[tid] = i < n ? in[i] : 0; // no barrier
        r[tid] = s[blockDim.x - 1 - tid];
    } else
        r[tid] = i < n ? in[i] : 0;
    __syncthreads();
    if (tid == 0) {
        float t = 0;
        for (int k = 0; k < blockDim.x; k++) t += r[k];
        out[blockIdx.x] = t;
    }
}
