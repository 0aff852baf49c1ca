enum { BLOCK = 256 };
__global__ void eb(const float *in, float *out, int n)
{
    __shared__ float s[BLOCK];
    int tid = threadIdx.x, i = blockIdx.x * BLOCK + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (int d = BLOCK / 2; d > 0; d /= 2) { if (tid < d) s[tid] += s[tid + d]; __syncthreads(); }
    if (tid == 0) out[blockIdx.x] = s[0];
}
