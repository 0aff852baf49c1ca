// Add up the elements of each block by a tree in shared memory, and leave each block's sum in out[].
// Any block from 32 to 1024 threads, also 96 or 160; any n.
template <typename In, typename Acc> __global__ void first_tree(In in, Acc *out, size_t n)
{
    Acc *partial = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    partial[tid] = i < n ? Acc(in[i]) : Acc(0);
    // your tree
    if (tid == 0)
        out[blockIdx.x] = partial[0];
}
