__global__ void overflows(const int *a, long long *total, int n)
{
    __shared__ int s[1024];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        int block_total = 0;
        for (int k = 0; k < blockDim.x; k++) block_total += s[k];
        total[blockIdx.x] = block_total;
    }
}
