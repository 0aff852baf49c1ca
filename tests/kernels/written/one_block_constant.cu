const int N = 1 << 20;
const int TPB = 256;
__global__ void red(const float *in, float *out) {
    __shared__ float s[TPB];
    float v = 0;
    for (int i = threadIdx.x; i < N; i += TPB) v += in[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = TPB / 2; k > 0; k >>= 1) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) *out = s[0];
}
