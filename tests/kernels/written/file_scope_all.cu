/* Right for blocks of up to 256 threads. Shared variables stand outside of the kernel. */
struct Tile {
    float cell[256];
    int count;
};
#if 1
__shared__ Tile tile;
#else
__shared__ float tile[32];
#endif
__shared__ int zeros[256], total;
extern __shared__ float more[];
#define OF(i) zeros[i]

template <typename T> __device__ T sum_of(const T *from, int count)
{
    T sum = 0;
    for (int k = 0; k < count; k++)
        sum += from[k];
    return sum;
}

__global__ void outside(const float *in, float *out, int n)
{
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    for (int k = tid; k < sizeof(zeros) / sizeof(zeros[0]); k += blockDim.x)
        OF(k) = 0;
    tile.cell[tid] = more[tid] = i < n ? in[i] : 0;
    if (tid == 0)
        total = 0;
    __syncthreads();
    atomicAdd(&total, zeros[255 - tid % 256]);
    __syncthreads();
    if (tid == 0)
        out[blockIdx.x] = sum_of(tile.cell, blockDim.x) / 2 + sum_of(more, blockDim.x) / 2 + total;
}
