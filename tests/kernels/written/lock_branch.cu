__global__ void lbr(const int *in, int *out, int n)
{
    __shared__ volatile int s[1024];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    int v = i < n ? in[i] : 0;
    if (tid % 32 < 16) s[tid] = v;
    else v += s[tid - 16];
    __syncthreads();
    if (tid % 32 >= 16) atomicAdd(out, v);
}
