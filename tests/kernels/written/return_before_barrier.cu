__global__ void early(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x,
        i = blockIdx.x * blockDim.x + tid;
    s[tid] = 0;
    if (i >= n) return;
    s[tid] = in[i];
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) {
        if (tid < k) s[tid] += s[tid + k];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, s[0]);
}
