const int N_THREADS = 192;
__global__ void fixed_block(const float *in, float *out, int n)
{
    __shared__ float s[N_THREADS];
    int tid = threadIdx.x, i = blockIdx.x * N_THREADS + tid;
    s[tid] = i < n ? in[i] : 0;
    __syncthreads();
    if (tid == 0) {
        float sum = 0;
        for (int k = 0; k < N_THREADS; k++) sum += s[k];
        out[blockIdx.x] = sum;
    }
}
