__global__ void sol(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    if (tid < 32) __syncthreads(); else __syncthreads();
    if (tid == 0) { float u = 0; for (int k = 0; k < blockDim.x; k++) u += s[k]; out[blockIdx.x] = u; }
}
