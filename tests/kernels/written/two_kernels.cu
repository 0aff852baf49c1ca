#include <iostream>
#include <vector>
#include "helper_functions.h"
#include <cub/cub.cuh>
#define CHECK(call) if ((call) != cudaSuccess) exit(1)

__global__ void plain_tree(float *sums, float *values)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned half = blockDim.x / 2; half > 0; half >>= 1) {
        if (threadIdx.x < half)
            values[at] += values[at + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = values[at];
}

__global__ void by_warps(const float *values, float *sums, const size_t count)
{
    __shared__ float part[32];
    size_t at = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    float mine = at < count ? __ldg(&values[at]) : 0.0f;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1)
        mine += __shfl_down_sync(0xffffffff, mine, lanes);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        for (int lanes = 16; lanes > 0; lanes >>= 1)
            mine += __shfl_down_sync(0xffffffff, mine, lanes);
        assert(threadIdx.x < 32);
        if (threadIdx.x == 0)
            sums[blockIdx.x] = mine;
    }
}

static float on_host(const std::vector<float> &values)
{
    float all = 0;
    for (float one : values) { all += one; }
    return all;
}

int main(int argc, char **argv)
{
    std::vector<float> values(1 << 16, 1.0f);
    float *in, *out;
    CHECK(cudaMalloc(&in, values.size() * sizeof(float)));
    CHECK(cudaMalloc(&out, 256 * sizeof(float)));
    plain_tree<<<256, 256>>>(out, in);
    by_warps<<<256, 256>>>(in, out, values.size());
    cudaDeviceSynchronize();
    std::cout << on_host(values) << std::endl;
    return 0;
}
