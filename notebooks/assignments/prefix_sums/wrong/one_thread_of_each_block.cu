// loses: busiest_warp_requests <= 2; shuffles >= 0.1 per element
template <typename In, typename Acc>
__global__ void prefix_sums(In in, Acc *out, size_t n, Acc *work)
{
    if (threadIdx.x > 0)
        return;
    Acc sum = 0;
    size_t first = size_t(blockIdx.x) * blockDim.x;
    for (size_t i = first; i < first + blockDim.x && i < n; i++) {
        sum += Acc(in[i]);
        out[i] = sum;
    }
    work[blockIdx.x] = sum;
}
