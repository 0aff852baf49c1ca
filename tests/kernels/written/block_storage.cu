/* Right for blocks of 256 threads: a class with storage, as libraries have it. */
#define HD __device__ __forceinline__
template <typename T, int BLOCK> struct BlockReduce {
    struct TempStorage {
        T cells[BLOCK / 32];
    };
    TempStorage &storage;
    HD BlockReduce(TempStorage &s) : storage(s)
    {
    }
    HD T sum(T v)
    {
        for (int lanes = 16; lanes; lanes >>= 1)
            v += __shfl_down_sync(0xffffffff, v, lanes);
        if (threadIdx.x % 32 == 0)
            storage.cells[threadIdx.x / 32] = v;
        __syncthreads();
        T total = 0;
        for (int w = 0; w < BLOCK / 32; w++)
            total += storage.cells[w];
        return total;
    }
};

struct Timer {
    cudaEvent_t begin;
    ~Timer()
    {
        cudaEventDestroy(begin);
    }
} timer;
SomeLibrary_t handle;

namespace library
{
__global__ void with_storage(float *sums, float *values, int n);

__device__ void store(float *to, float value)
{
    to[blockIdx.x] = value;
}

__global__ void with_storage(float *sums, float *values, int n)
{
    using Reduce = BlockReduce<float, 256>;
    __shared__ typename Reduce::TempStorage temp;
    int i = blockIdx.x * 256 + threadIdx.x;
    float total = Reduce(temp).sum(i < n ? values[i] : 0.0f);
    if (threadIdx.x == 0)
        store(sums, total);
}
} // namespace library

void run(std::vector<float> v = {})
{
    library::with_storage<<<1, 256>>>(v.data(), v.data(), 1);
}

int main()
{
    run();
}
