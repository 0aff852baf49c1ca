// loses: global_load_sectors <= 1.3 times the least; busiest_warp_requests <= 20
// gpureduce: finishes=yes alone=yes
template <typename In, typename Acc> __global__ void segments(In in, Acc *out, size_t n)
{
    if (threadIdx.x >= 32)
        return;
    Acc sum = 0;
    for (size_t i = threadIdx.x; i < n; i += 32)
        sum += Acc(in[i]);
    for (unsigned offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x == 0)
        *out = sum;
}
