/* Another operation: the minimum of elements and the 0 that is there. */
__global__ void least(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicMin(out, in[i]);
}
