struct Pair { float4 v; int k; };
union Both { float4 v; float f[4]; };
inline __host__ __device__ float4 operator+(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
inline __host__ __device__ void operator+=(float4 &a, float4 b)
{
    a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w;
}
__global__ void forms(const float4 *in, float *out, int n)
{
    __shared__ float4 s[1024];
    float4 sum = {0}, zero = {}, other = make_float4(0.0f, 0.0f, 0.0f, 0.0f), parts[2] = {};
    Both both = {};
    Pair pair = {{0, 0, 0, 0}, 1};
    float4 third{0.f, 0.f, 0.f, 0.f};
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    sum += i < n ? in[i] : zero;
    other = pair.v + third;
    parts[0] = sum + other;
    both.v = parts[0] + parts[1];
    s[tid] = both.v;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d /= 2) {
        if (tid < d) s[tid] = s[tid] + s[tid + d];
        __syncthreads();
    }
    if (tid == 0) {
        auto [x, y, z, w] = s[0];
        out[blockIdx.x] = x + y + z + w;
    }
}
