#define LOG 8
__global__ void shs(const float *in, float *out, int n)
{
    __shared__ float a[1 << LOG], b[1 << LOG];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    a[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    b[tid] = a[tid];
    __syncthreads();
    if (tid == 0) { float t = 0; for (int k = 0; k < blockDim.x; k++) t += b[k]; out[blockIdx.x] = t; }
}
