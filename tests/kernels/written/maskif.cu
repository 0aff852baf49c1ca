__global__ void maskif(const int *a, int *b, int N)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        int v = a[i];
        for (int o = 16; o; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);
        if (threadIdx.x % 32 == 0) atomicAdd(b, v);
    }
}
