/* Additions to addresses by atomicAdd and by gpureduce/exact_add.cuh, for tools/exact_additions.py:
 *
 *     nvcc -std=c++17 -O3 -arch=sm_90 -shared -Xcompiler -fPIC -I$(gpureduce include) \
 *         -o exact_additions.so tools/exact_additions.cu */
#include <gpureduce/exact_add.cuh>

#include <math.h>
#include <string.h>

using namespace gpureduce;

namespace
{

/* Sums by the processor's own atomics, with the same functions. */
template <typename T, typename Word = T> struct Atomic {
    Word sum;

    __device__ __forceinline__ void add(T x)
    {
        atomicAdd(&sum, Word(x));
    }

    __device__ Word value() const
    {
        return sum;
    }
};

typedef Atomic<float, unsigned long long> Integer; /* the cost of a 64-bit atomic alone */
typedef exact_window<float, -30> Window;
typedef exact_window<float, -30, 27> Narrow;
typedef exact_window<double, -60> DoubleWindow;
/* More words, so that none overflows in 2^32 additions: no addition reads the old value. */
typedef exact_sum<float, -149, 8, 33, false> Unread;

template <bool BY_WARP, typename Sum, typename T>
__global__ void add(Sum *sums, const int *id, const T *x, size_t n)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if constexpr (BY_WARP) /* n is a multiple of the block */
        add_in_warp(sums[id[i]], x[i]);
    else if (i < n)
        sums[id[i]].add(x[i]);
}

/* Each block adds to sums of its own first. */
template <typename Sum, typename T>
__global__ void add_by_block(Sum *sums, const int *id, const T *x, size_t n, int count)
{
    extern __shared__ unsigned long long shared[];
    Sum *mine = reinterpret_cast<Sum *>(shared);
    for (int k = threadIdx.x; k < count; k += blockDim.x)
        mine[k].reset();
    __syncthreads();
    size_t threads = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += threads)
        mine[id[i]].add_shared(x[i]);
    __syncthreads();
    for (int k = threadIdx.x; k < count; k += blockDim.x)
        sums[k].merge(mine[k]);
}

template <typename Sum> __global__ void finish(double *out, const Sum *sums, size_t count)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = double(sums[i].value());
}

__device__ unsigned long long random_bits(unsigned long long i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15ull;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9ull;
    i = (i ^ i >> 27) * 0x94d049bb133111ebull;
    return i ^ i >> 31;
}

/* Ids are uniform, or as often as 1 / (id + 1). Values are multiples of 2^-24 in [-0.5, 0.5), or
 * spread over 40 binades. */
template <typename T>
__global__ void fill(int *id, T *x, size_t n, int count, int is_power_law, int is_spread)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double u = double(random_bits(2 * i) >> 11) * 0x1p-53;
    int k = is_power_law ? int(exp(u * log(double(count) + 1))) - 1 : int(u * count);
    id[i] = k < count ? k : count - 1;
    unsigned long long bits = random_bits(2 * i + 1);
    T value = T((int)(bits & 0xffffff) - 0x800000) * T(0x1p-24);
    x[i] = is_spread ? T(ldexp(double(value), (int)(bits >> 24) % 40 - 20)) : value;
}

struct Arrays {
    size_t n = 0;
    int count = 0, sms = 0;
    int *id = nullptr;
    void *x = nullptr, *sums = nullptr, *cache = nullptr;
    double *out = nullptr;
    cudaEvent_t start, stop;
} arrays;
constexpr size_t CACHE = size_t(1) << 28, MOST_SHARED = 48 << 10;
enum { PLAIN, BY_WARP, BY_BLOCK };

template <typename Sum, typename T> double time_of(int way)
{
    Arrays &a = arrays;
    Sum *sums = static_cast<Sum *>(a.sums);
    const T *x = static_cast<const T *>(a.x);
    size_t shared = a.count * sizeof(Sum);
    unsigned grid = unsigned((a.n + 255) / 256);
    if (way == BY_BLOCK && shared > MOST_SHARED)
        return -1;
    cudaMemsetAsync(a.sums, 0, shared);
    cudaMemsetAsync(a.cache, 1, CACHE);
    cudaEventRecord(a.start);
    if constexpr (sizeof(Sum) > 8) {
        if (way == BY_WARP)
            add<true><<<grid, 256>>>(sums, a.id, x, a.n);
        else if (way == BY_BLOCK)
            add_by_block<<<4 * a.sms, 512, shared>>>(sums, a.id, x, a.n, a.count);
    }
    if (way == PLAIN)
        add<false><<<grid, 256>>>(sums, a.id, x, a.n);
    cudaEventRecord(a.stop);
    finish<<<(a.count + 255) / 256, 256>>>(a.out, sums, a.count);
    float ms = 0;
    if (cudaDeviceSynchronize() != cudaSuccess)
        return -2;
    cudaEventElapsedTime(&ms, a.start, a.stop);
    return ms * 1e3;
}

} // namespace

/* Makes the arrays. Returns an error's text, or null. `type` is 'f' or 'd'. */
extern "C" const char *exact_additions_begin(size_t n, int count, char type, int is_power_law,
                                             int is_spread)
{
    Arrays &a = arrays;
    cudaFree(a.id), cudaFree(a.x), cudaFree(a.sums), cudaFree(a.cache), cudaFree(a.out);
    a = Arrays();
    a.n = n, a.count = count;
    cudaMalloc(&a.id, n * sizeof *a.id), cudaMalloc(&a.x, n * 8);
    cudaMalloc(&a.sums, count * sizeof(exact_sum<double>)), cudaMalloc(&a.cache, CACHE);
    cudaMalloc(&a.out, count * sizeof *a.out);
    cudaEventCreate(&a.start), cudaEventCreate(&a.stop);
    cudaDeviceGetAttribute(&a.sms, cudaDevAttrMultiProcessorCount, 0);
    unsigned grid = unsigned((n + 255) / 256);
    if (type == 'f')
        fill<<<grid, 256>>>(a.id, static_cast<float *>(a.x), n, count, is_power_law, is_spread);
    else
        fill<<<grid, 256>>>(a.id, static_cast<double *>(a.x), n, count, is_power_law, is_spread);
    cudaError_t status = cudaDeviceSynchronize();
    return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

/* Adds once. Returns microseconds, -1 where this cannot be done, -2 on an error. */
extern "C" double exact_additions_run(const char *name, int way)
{
#define RUN(called, Sum, T)                                                                        \
    if (!strcmp(name, called))                                                                     \
    return time_of<Sum, T>(way)
    RUN("atomicAdd float", Atomic<float>, float);
    RUN("atomicAdd double", Atomic<double>, double);
    RUN("atomicAdd 64 bits", Integer, float);
    RUN("exact_sum float", exact_sum<float>, float);
    RUN("exact_sum float, unread", Unread, float);
    RUN("exact_sum double", exact_sum<double>, double);
    RUN("exact_window float", Window, float);
    RUN("exact_window float, K", Narrow, float);
    RUN("exact_window double", DoubleWindow, double);
    return -1;
}

/* Copies the sums of the last run. */
extern "C" int exact_additions_sums(double *host)
{
    return cudaMemcpy(host, arrays.out, arrays.count * sizeof *host, cudaMemcpyDeviceToHost);
}
