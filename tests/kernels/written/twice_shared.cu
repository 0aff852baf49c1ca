/* Right: dynamic shared memory has two parts, and bytes are added up without overflow. */
__global__ void scan(const unsigned char *in, unsigned long long *out, size_t n)
{
    extern __shared__ unsigned long long cells[];
    unsigned long long *from = cells, *to = cells + blockDim.x;
    unsigned t = threadIdx.x;
    size_t i = (size_t)__umul24(blockIdx.x + blockIdx.y * gridDim.x, blockDim.x) + t;
    from[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        to[t] = t < step ? from[t] : from[t] + from[t - step];
        __syncthreads();
        unsigned long long *other = from;
        from = to;
        to = other;
    }
    if (t == blockDim.x - 1)
        out[blockIdx.x] += from[t];
}
