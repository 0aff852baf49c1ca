// out[i] is the sum of the elements up to i. Each block makes the entries of its own elements, and
// stores its sum in work[blockIdx.x]: further launches add the sums of earlier blocks.
//
// Each of these steps waits at two barriers. Change them into shuffles: __shfl_up_sync reads the
// register of a lane below. Then only the sums of the warps pass through shared memory.
template <typename In, typename Acc>
__global__ void prefix_sums(In in, Acc *out, size_t n, Acc *work)
{
    Acc *entry = shared_array<Acc>();
    unsigned tid = threadIdx.x;
    size_t i = size_t(blockIdx.x) * blockDim.x + tid;
    Acc sum = i < n ? Acc(in[i]) : Acc(0);
    entry[tid] = sum;
    __syncthreads();
    for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
        if (tid >= distance)
            sum += entry[tid - distance];
        __syncthreads();
        entry[tid] = sum;
        __syncthreads();
    }
    if (i < n)
        out[i] = sum;
    if (tid == blockDim.x - 1)
        work[blockIdx.x] = sum;
}
