/* Additions by gpureduce/exact_add.cuh, as a program: reads values and the numbers of their sums,
 * writes the sums. Compiled by nvcc for a card, and by g++ with the emulator.
 *
 *     exact_add KIND WAY BLOCK SEED RUNS < (n, count: int64; ids: int32[n]; values) > (words, sums)
 *
 * reads and writes as many times as there are values, since a process on a card takes long to start.
 * KIND is a type below. WAY: 0 add, 1 add_in_warp, 2 add_shared and merge, 3 add, then merge each
 * sum into itself BLOCK times. SEED is that of the emulator's threads. Each of the RUNS has another
 * order of the values, if n is a power of two, and must have the same bits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <gpureduce/exact_add.cuh>
#ifndef __CUDACC__
#include "backend/backend.h"
#include "emulator/runtime/launch.h"
#include "launch_kernel.h"
using namespace gr;
#endif

using namespace gpureduce;

template <typename Sum, typename T>
__global__ void add(Sum *sums, const int *id, const T *x, size_t n, size_t step)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        sums[id[i * step % n]].add(x[i * step % n]);
}

template <typename Sum, typename T>
__global__ void add_by_warp(Sum *sums, const int *id, const T *x, size_t n, size_t step)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    unsigned mask = __ballot_sync(0xffffffffu, i < n);
    if (i < n)
        add_in_warp(sums[id[i * step % n]], x[i * step % n], mask);
}

/* One sum for each block: all ids are 0. */
template <typename Sum, typename T>
__global__ void add_in_shared(Sum *sums, const int *id, const T *x, size_t n, size_t step)
{
#ifdef __CUDACC__
    __shared__ Sum mine;
#else
    Sum &mine = *reinterpret_cast<Sum *>(gr_shared);
#endif
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0)
        mine.reset();
    __syncthreads();
    if (i < n)
        mine.add_shared(x[i * step % n]);
    __syncthreads();
    if (threadIdx.x == 0)
        sums[id[0]].merge(mine);
}

template <typename Sum> __global__ void double_them(Sum *sums, size_t count)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        Sum copy = sums[i];
        sums[i].merge(copy);
    }
}

template <typename Sum, typename T>
__global__ void round_them(T *out, double *wide, float *single, const Sum *sums, size_t count)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = sums[i].value();
        wide[i] = sums[i].template value<double>();
        single[i] = sums[i].template value<float>();
    }
}

static void check(cudaError_t status)
{
    if (status != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(status));
        exit(1);
    }
}

#ifdef __CUDACC__
#define LAUNCH(kernel, grid, block, shared, ...)                                                   \
    kernel<<<grid, block, shared>>>(__VA_ARGS__), check(cudaDeviceSynchronize())
#else
#define LAUNCH(kernel, grid, block, shared, ...)                                                   \
    check(launch(kernel, grid, block, shared, __VA_ARGS__))
#endif

template <typename T> static T *on_device(const std::vector<T> &host)
{
    T *made;
    check(cudaMalloc((void **)&made, host.size() * sizeof(T) + 1));
    check(cudaMemcpy(made, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return made;
}

template <typename T> static std::vector<T> read(size_t n)
{
    std::vector<T> host(n);
    if (fread((void *)host.data(), sizeof(T), n, stdin) != n)
        exit(2);
    return host;
}

template <typename T> static void write(const T *device, size_t n)
{
    std::vector<T> host(n);
    check(cudaMemcpy((void *)host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
    fwrite((void *)host.data(), sizeof(T), n, stdout);
}

template <typename Sum, typename T> static bool run(int way, unsigned block, size_t runs)
{
    long long size[2];
    if (fread(size, sizeof size, 1, stdin) != 1)
        return false;
    size_t n = (size_t)size[0], count = (size_t)size[1];
    int *id = on_device(read<int>(n));
    T *x = on_device(read<T>(n)), *out = on_device(std::vector<T>(count));
    double *wide = on_device(std::vector<double>(count));
    float *single = on_device(std::vector<float>(count));
    Sum *sums = on_device(std::vector<Sum>(count));
    unsigned merges = way == 3 ? block : 0, of_sums = unsigned(count + 255) / 256;
    block = way == 3 ? 128 : block;
    unsigned grid = unsigned((n + block - 1) / block);
    std::vector<T> first(count), now(count);
    for (size_t r = 0; r < runs; r++) {
        size_t step = 2 * r + 1;
        check(cudaMemset(sums, 0, count * sizeof(Sum)));
        if (n > 0 && way == 1)
            LAUNCH((add_by_warp<Sum, T>), grid, block, 0, sums, id, x, n, step);
        else if (n > 0 && way == 2)
            LAUNCH((add_in_shared<Sum, T>), grid, block, sizeof(Sum), sums, id, x, n, step);
        else if (n > 0)
            LAUNCH((add<Sum, T>), grid, block, 0, sums, id, x, n, step);
        for (unsigned i = 0; i < merges; i++)
            LAUNCH((double_them<Sum>), of_sums, 256, 0, sums, count);
        LAUNCH((round_them<Sum, T>), of_sums, 256, 0, out, wide, single, sums, count);
        check(cudaMemcpy((void *)now.data(), out, count * sizeof(T), cudaMemcpyDeviceToHost));
        if (r == 0)
            first = now;
        if (memcmp((void *)first.data(), (void *)now.data(), count * sizeof(T)))
            exit(3);
    }
    write(sums, count);
    write(out, count);
    write(wide, count);
    write(single, count);
    for (void *used : {(void *)id, (void *)x, (void *)out, (void *)wide, (void *)single, (void *)sums})
        check(cudaFree(used));
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    const char *kind = argv[1];
    int way = atoi(argv[2]), seed = atoi(argv[4]);
    unsigned block = unsigned(atoi(argv[3]));
    size_t runs = size_t(atoi(argv[5]));
#ifndef __CUDACC__
    gr_backend_schedule(seed ? GR_SCHEDULE_RANDOM : GR_SCHEDULE_FORWARD, (unsigned)seed);
#endif
    (void)seed;
#define KIND(name, Sum, T)                                                                         \
    while (!strcmp(kind, name) && run<Sum, T>(way, block, runs)) {                                 \
    }
    typedef exact_window<float, -40> window;
    typedef exact_window<float, -30, 24> narrow;
    typedef exact_window<double, -60> double_window;
    KIND("float32", exact_sum<float>, float)
    KIND("float64", exact_sum<double>, double)
    KIND("float16", exact_sum<__half>, __half)
    KIND("bfloat16", exact_sum<__nv_bfloat16>, __nv_bfloat16)
    KIND("int64", exact_sum<long long>, long long)
    KIND("window", window, float)
    KIND("narrow", narrow, float)
    KIND("double_window", double_window, double)
    return 0;
}
