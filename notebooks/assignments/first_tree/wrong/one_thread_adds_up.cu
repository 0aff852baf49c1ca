// loses: right
// gpureduce: finishes=yes elements=1
template <typename In, typename Acc> __global__ void first_tree(In in, Acc *out, size_t n)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        Acc sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += Acc(in[i]);
        *out = sum;
    }
}
