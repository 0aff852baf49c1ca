template <typename T, unsigned int BS>
__global__ void k13(T *in, T *out, int n)
{
    __shared__ T s[BS];
    int i = blockIdx.x * BS + threadIdx.x;
    float v = i < n ? in[i] : 0;
    s[threadIdx.x] = v;
    __syncthreads();
    for (unsigned h = BS / 2; h; h /= 2) {
        if (threadIdx.x < h) s[threadIdx.x] += s[threadIdx.x + h];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
void run(float *a, float *b, int n) { k13<float, 256><<<n / 256, 256>>>(a, b, n); }
