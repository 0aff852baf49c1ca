#include <cstdio>
#include <chrono>
#include <numeric>
#include <algorithm>
#include "helper_cuda.h"
using namespace std;
typedef float real_t;
static const int kThreads = 256;
void check(cudaError_t e, const char *file, int line) { if (e) { fprintf(stderr, "%s %d\n", file, line); exit(1); } }
#define CHECK(e) check(e, __FILE__, __LINE__)
__global__ void reduce(real_t *d_out, const real_t * __restrict__ d_in, size_t size) {
    extern __shared__ real_t tile[];
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    real_t acc = 0;
    for (; i < size; i += blockDim.x * gridDim.x) acc += d_in[i];
    tile[threadIdx.x] = acc;
    __syncthreads();
    for (int s = blockDim.x / 2; s; s >>= 1) { if (threadIdx.x < s) tile[threadIdx.x] += tile[threadIdx.x + s]; __syncthreads(); }
    if (threadIdx.x == 0) d_out[blockIdx.x] = tile[0];
}
int main() {
    cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
    real_t *x, *y; CHECK(cudaMalloc(&x, 4 << 20)); CHECK(cudaMalloc(&y, 4096));
    cudaEventRecord(a);
    reduce<<<64, kThreads, kThreads * sizeof(real_t)>>>(y, x, 1 << 20);
    reduce<<<1, 64, 64 * sizeof(real_t)>>>(y, y, 64);
    cudaEventRecord(b);
    auto lambda = [&](int k) { return k + 1; };
    printf("%d\n", lambda(3));
}
