// loses: right
template <typename In, typename Acc> __global__ void no_conflicts(In in, Acc *out, size_t n)
{
    if (threadIdx.x == 0 && n == 0)
        out[blockIdx.x] = Acc(in[0]);
}
