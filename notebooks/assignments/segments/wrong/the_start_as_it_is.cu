// loses: global_load_sectors <= 1.3 times the least; atomics <= 0.005 per element; busiest_warp_requests <= 20
// The array is cut into segments, one for each warp of the grid: warp w has the elements from n * w / warps to
// n * (w + 1) / warps - 1. Segments begin anywhere, and their lengths differ by one. Here the first lane of a warp adds
// up the segment alone. Let all lanes share the work, and leave each segment's sum in *out by one atomic.
// gpureduce: elements=many finishes=yes shared=none
template <typename In, typename Acc> __global__ void segments(In in, Acc *out, size_t n)
{
    size_t warps = size_t(gridDim.x) * blockDim.x / 32;
    size_t warp = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    size_t first = n * warp / warps, end = n * (warp + 1) / warps;
    if (threadIdx.x % 32 == 0)
        for (size_t i = first; i < end; i++)
            atomicAdd(out, Acc(in[i]));
}
