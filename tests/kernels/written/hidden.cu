__global__ void hidden(const float *a, float *b, int n)
{
    __shared__ float s[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? a[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 1; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) b[blockIdx.x] = s[0];
}
