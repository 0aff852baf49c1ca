__global__ void stp(const float *in, float *out, int n)
{
    __shared__ float s[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    if (tid == 0) { float t = 0; for (int k = 0; k < blockDim.x; k++) t += s[k]; *(out + blockIdx.x) = t; }
}
