__global__ void by4(const float *a, float *b, int n)
{
    __shared__ float s[1024];
    int t = threadIdx.x;
    float v = 0;
    const float4 *a4 = reinterpret_cast<const float4 *>(a);
    for (int i = blockIdx.x * blockDim.x + t; i < n / 4; i += gridDim.x * blockDim.x) { float4 q = a4[i]; v += q.x + q.y + q.z + q.w; }
    s[t] = v;
    __syncthreads();
    for (int k = blockDim.x / 2; k; k >>= 1) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) b[blockIdx.x] = s[0];
}
