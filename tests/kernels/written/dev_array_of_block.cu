__device__ float scratch[1024];
__global__ void dab(const float *in, float *out, int n)
{
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    scratch[tid] = i < n ? in[i] : 0;
    __syncthreads();
    if (tid == 0) { float t = 0; for (int k = 0; k < blockDim.x; k++) t += scratch[k]; out[blockIdx.x] = t; }
}
