__global__ void padded_cells(const float *in, float *out, int n)
{
    __shared__ float s[1024 + 512];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    if (tid < 512) s[blockDim.x + tid] = 0;
    __syncthreads();
    float v = 0;
    if (tid == 0) for (int k = 0; k < blockDim.x + (blockDim.x < 512 ? blockDim.x : 512); k++) v += s[k];
    if (tid == 0) out[blockIdx.x] = v;
}
