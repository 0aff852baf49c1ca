/* A histogram of weights, 20 times: by atomicAdd, and by exact additions. Prints how many different
 * histograms there were. */
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <gpureduce/exact_add.cuh>

using Sum = gpureduce::exact_sum<float>;

__global__ void by_atomics(float *bins, const unsigned *bin, const float *weight, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&bins[bin[i]], weight[i]);
}

__global__ void exactly(Sum *bins, const unsigned *bin, const float *weight, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        bins[bin[i]].add(weight[i]);
}

__global__ void finish(float *out, const Sum *bins, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = bins[i].value();
}

int main()
{
    const int n = 1 << 22, count = 1000, block = 256, grid = n / block;
    unsigned *bin;
    float *weight, *out;
    Sum *sums;
    cudaMallocManaged(&bin, n * sizeof *bin);
    cudaMallocManaged(&weight, n * sizeof *weight);
    cudaMallocManaged(&out, count * sizeof *out);
    cudaMalloc(&sums, count * sizeof *sums);
    unsigned state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        bin[i] = (state >> 8) % count;
        weight[i] = float(state) * 2.3283064e-10f - 0.5f;
    }
    std::set<std::string> rounded, exact;
    for (int run = 0; run < 20; run++) {
        cudaMemset(out, 0, count * sizeof *out);
        by_atomics<<<grid, block>>>(out, bin, weight, n);
        cudaDeviceSynchronize();
        rounded.insert(std::string((char *)out, count * sizeof *out));

        cudaMemset(sums, 0, count * sizeof *sums); // empty sums
        exactly<<<grid, block>>>(sums, bin, weight, n);
        finish<<<(count + block - 1) / block, block>>>(out, sums, count);
        if (cudaDeviceSynchronize() != cudaSuccess)
            return 1;
        exact.insert(std::string((char *)out, count * sizeof *out));
    }
    printf("atomicAdd: %zu different histograms, exact_sum: %zu\n", rounded.size(), exact.size());
    return exact.size() != 1;
}
