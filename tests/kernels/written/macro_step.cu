#define N_THREADS 256
#define STEP(s)                         \
    if (tid < (s)) cache[tid] += cache[tid + (s)]; \
    __syncthreads();
#define DECLARE_CACHE(type) __shared__ type cache[N_THREADS]

__global__ void unrolled(const float *a, float *result, int n)
{
    DECLARE_CACHE(float);
    int tid = threadIdx.x;
    float t = 0;
    for (int i = tid + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x)
        t += a[i];
    cache[tid] = t;
    __syncthreads();
    STEP(128) STEP(64) STEP(32) STEP(16) STEP(8) STEP(4) STEP(2) STEP(1)
    if (tid == 0)
        result[blockIdx.x] = cache[0];
}
