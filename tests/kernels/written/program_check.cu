#include <cstdio>
#include <cstdlib>
#include <vector>
#include <numeric>
#include <cuda_runtime.h>
#define CHECK(call)                                                            \
    do {                                                                       \
        cudaError_t err = call;                                                \
        if (err != cudaSuccess) {                                              \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err)); \
            exit(EXIT_FAILURE);                                                \
        }                                                                      \
    } while (0)
const int threadsPerBlock = 256;
__global__ void reduce(float *d_in, float *d_out, int n)
{
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = (i < n) ? d_in[i] : 0;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) {
            sdata[tid] += sdata[tid + s];
        }
        __syncthreads();
    }
    if (tid == 0) d_out[blockIdx.x] = sdata[0];
}
float cpu(const std::vector<float> &v) { return std::accumulate(v.begin(), v.end(), 0.0f); }
int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1 << 20;
    std::vector<float> h(n, 1.0f);
    float *d_in, *d_out, result;
    int blocks = (n + threadsPerBlock - 1) / threadsPerBlock;
    CHECK(cudaMalloc(&d_in, n * sizeof(float)));
    CHECK(cudaMalloc(&d_out, blocks * sizeof(float)));
    CHECK(cudaMemcpy(d_in, h.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    cudaEventRecord(start);
    while (n > 1) {
        reduce<<<blocks, threadsPerBlock, threadsPerBlock * sizeof(float)>>>(d_in, d_out, n);
        CHECK(cudaGetLastError());
        n = blocks;
        blocks = (n + threadsPerBlock - 1) / threadsPerBlock;
        std::swap(d_in, d_out);
    }
    cudaEventRecord(stop);
    CHECK(cudaMemcpy(&result, d_in, sizeof(float), cudaMemcpyDeviceToHost));
    printf("%f %f\n", result, cpu(h));
    return 0;
}
