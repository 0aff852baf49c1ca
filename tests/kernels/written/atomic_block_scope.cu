#include <cuda/atomic>
__device__ cuda::atomic<unsigned, cuda::thread_scope_block> done;
__device__ float partial[65536];
__global__ void blocked(const float *in, float *out, int n)
{
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    float v = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += in[i];
    atomicAdd(&total, v);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = total;
        if (done.fetch_add(1, cuda::memory_order_acq_rel) == gridDim.x - 1) {
            float t = 0;
            for (int b = 0; b < gridDim.x; b++) t += partial[b];
            out[0] = t;
            done.store(0, cuda::memory_order_relaxed);
        }
    }
}
