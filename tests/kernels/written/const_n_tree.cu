#include <stdio.h>
#define N 4096
#define TPB 256
__global__ void sumN(int *a, int *b)
{
    __shared__ int s[TPB];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < N ? a[i] : 0;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k /= 2) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) b[blockIdx.x] = s[0];
}
int main(void) {
    int a[N], b[N / TPB], *da, *db;
    for (int i = 0; i < N; i++) a[i] = i;
    cudaMalloc((void**)&da, N * sizeof(int)); cudaMalloc((void**)&db, N / TPB * sizeof(int));
    cudaMemcpy(da, a, N * sizeof(int), cudaMemcpyHostToDevice);
    sumN<<<N / TPB, TPB>>>(da, db);
    cudaMemcpy(b, db, N / TPB * sizeof(int), cudaMemcpyDeviceToHost);
    int total = 0;
    for (int i = 0; i < N / TPB; i++) total += b[i];
    printf("%d\n", total);
    cudaFree(da); cudaFree(db);
}
