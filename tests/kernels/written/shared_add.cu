__global__ void shared_add(const int *in, int *out, int n)
{
    __shared__ int s;
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    if (tid == 0) s = 0;
    __syncthreads();
    if (i < n) s += in[i];
    __syncthreads();
    if (tid == 0) out[blockIdx.x] = s;
}
