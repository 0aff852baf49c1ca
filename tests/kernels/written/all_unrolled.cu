template <unsigned int THREADS>
__device__ void last_steps(volatile int* cell, unsigned int me) {
    if (THREADS >= 64) cell[me] += cell[me + 32];
    if (THREADS >= 32) cell[me] += cell[me + 16];
    if (THREADS >= 16) cell[me] += cell[me + 8];
    if (THREADS >= 8) cell[me] += cell[me + 4];
    if (THREADS >= 4) cell[me] += cell[me + 2];
    if (THREADS >= 2) cell[me] += cell[me + 1];
}
template <unsigned int THREADS>
__global__ void all_unrolled(int *values, int *sums, unsigned int n)
{
    extern __shared__ int cell[];
    unsigned int me = threadIdx.x;
    unsigned int i = blockIdx.x*(THREADS*2) + me;
    unsigned int stride = THREADS*2*gridDim.x;
    cell[me] = 0;
    while (i < n) { cell[me] += values[i] + values[i+THREADS]; i += stride; }
    __syncthreads();
    if (THREADS >= 512) { if (me < 256) { cell[me] += cell[me + 256]; } __syncthreads(); }
    if (THREADS >= 256) { if (me < 128) { cell[me] += cell[me + 128]; } __syncthreads(); }
    if (THREADS >= 128) { if (me < 64) { cell[me] += cell[me + 64]; } __syncthreads(); }
    if (me < 32) last_steps<THREADS>(cell, me);
    if (me == 0) sums[blockIdx.x] = cell[0];
}
