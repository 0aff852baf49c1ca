template <int BLOCK_SIZE, int ITEMS_PER_THREAD>
__global__ void blocked(const float *in, float *out, int n)
{
    __shared__ float s[BLOCK_SIZE];
    int start = (blockIdx.x * BLOCK_SIZE + threadIdx.x) * ITEMS_PER_THREAD;
    float sum = 0.f;
    for (int k = 0; k < ITEMS_PER_THREAD; k++)
        if (start + k < n)
            sum += in[start + k];
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int h = BLOCK_SIZE / 2; h >= 1; h /= 2) {
        if (threadIdx.x < h)
            s[threadIdx.x] += s[threadIdx.x + h];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        atomicAdd(out, s[0]);
}

void launch(const float *in, float *out, int n)
{
    blocked<128, 8><<<(n + 1023) / 1024, 128>>>(in, out, n);
}
