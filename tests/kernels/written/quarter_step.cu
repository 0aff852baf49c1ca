#define TPB 256
__global__ void k(const float *in, float *out, int n) {
    __shared__ float s[TPB];
    int i = blockIdx.x * TPB + threadIdx.x;
    s[threadIdx.x] = 0.0f;
    if (i < n) s[threadIdx.x] = in[i];
    __syncthreads();
    for (int k = TPB / 4; k; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
