// loses: right; no races
template <typename In, typename Acc> __global__ void mended(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    __syncthreads();
    for (unsigned stride = 512; stride > 32; stride /= 2) {
        if (stride >= blockDim.x)
            continue;
        if (tid < stride && tid + stride < blockDim.x)
            partial[tid] += partial[tid + stride];
    }
    if (tid < 32) {
        if (tid < 32 && tid + 32 < blockDim.x)
            partial[tid] += partial[tid + 32];
        __syncwarp();
        if (tid < 16 && tid + 16 < blockDim.x)
            partial[tid] += partial[tid + 16];
        __syncwarp();
        if (tid < 8 && tid + 8 < blockDim.x)
            partial[tid] += partial[tid + 8];
        __syncwarp();
        if (tid < 4 && tid + 4 < blockDim.x)
            partial[tid] += partial[tid + 4];
        __syncwarp();
        if (tid < 2 && tid + 2 < blockDim.x)
            partial[tid] += partial[tid + 2];
        __syncwarp();
        if (tid < 1 && tid + 1 < blockDim.x)
            partial[tid] += partial[tid + 1];
    }
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
