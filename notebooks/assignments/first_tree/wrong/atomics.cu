// loses: forbid atomicAdd
template <typename In, typename Acc> __global__ void first_tree(In in, Acc *out, size_t n)
{
    size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(out, Acc(in[i]));
}
