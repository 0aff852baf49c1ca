/* Wrong: sums of a thread wrap around at 256. */
__global__ void in_a_byte(const unsigned char *in, unsigned long long *out, size_t n)
{
    unsigned char sum = 0;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    atomicAdd(out, (unsigned long long)sum);
}
