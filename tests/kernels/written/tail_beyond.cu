__global__ void semi(const float *in, float *out, int n)
{
    extern __shared__ float s[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    if (tid < 32) { for (int k = tid + 32; k < blockDim.x; k += 32) s[tid] += s[k]; __syncwarp();
      for (int o = 16; o; o /= 2) { float v = s[tid + o]; __syncwarp(); s[tid] += v; __syncwarp(); } }
    if (tid == 0) out[blockIdx.x] = s[0];
}
