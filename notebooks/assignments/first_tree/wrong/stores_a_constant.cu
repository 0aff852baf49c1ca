// loses: right
template <typename In, typename Acc> __global__ void first_tree(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    partial[tid] = Acc(0);
    if (i < n && tid == 0)
        out[blockIdx.x] = Acc(42);
}
