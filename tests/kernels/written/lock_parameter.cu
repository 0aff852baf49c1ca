__global__ void red(const float *in, float *out, int *mutex, int n) {
    __shared__ float s[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int k = 512; k; k >>= 1) { if (t < k && t + k < blockDim.x) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) {
        while (atomicCAS(mutex, 0, 1) != 0);
        __threadfence();
        *out += s[0];
        __threadfence();
        atomicExch(mutex, 0);
    }
}
