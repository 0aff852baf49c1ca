__global__ void agg(const unsigned *in, unsigned *out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        unsigned mask = __activemask();
        unsigned s = __reduce_add_sync(mask, in[i]);
        int leader = __ffs(mask) - 1;
        if ((threadIdx.x & 31) == leader)
            atomicAdd(out, s);
    }
}
