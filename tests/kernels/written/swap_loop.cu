/* Right. The guide's own atomic addition: what the compare-and-swap begins with may be old. */
__device__ void add_to(float *address, float value)
{
    int *bits = (int *)address, old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(value + __int_as_float(assumed)));
    } while (assumed != old);
}

__global__ void swap_loop(const float *in, float *out, int n)
{
    __shared__ float total;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        add_to(&total, in[i]);
    __syncthreads();
    if (threadIdx.x == 0)
        add_to(out, total);
}
