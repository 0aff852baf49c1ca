// loses: right
template <typename In, typename Acc>
__global__ void look_back(In in, Acc *out, size_t n, Acc *work, unsigned *ticket)
{
    // work has two sums for each tile: of the tile, and of everything up to its end. ticket[0]
    // counts the tiles that have begun, and known[t] is 1 or 2 once the first or both are there.
    Acc *entry = shared_array<Acc>(), *all = work + gridDim.x;
    unsigned *known = ticket + 1, *drawn = known + gridDim.x, tid = threadIdx.x;
    if (tid == 0)
        drawn[blockIdx.x] = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned tile = drawn[blockIdx.x];
    size_t i = size_t(tile) * blockDim.x + tid;

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

    if (tid == blockDim.x - 1) {
        Acc before = 0;
        work[tile] = sum;
        __threadfence();
        atomicExch(&known[tile], 1u);
        for (unsigned t = tile, found = 0; t > 0 && found == 0; t--) {
            while ((found = atomicAdd(&known[t - 1], 0u)) == 0)
                ;
            __threadfence();
            before = (found == 2 ? all : work)[t - 1] + before;
        }
        all[tile] = before + sum;
        __threadfence();
        atomicExch(&known[tile], 2u);
        entry[0] = before;
    }
    __syncthreads();
    if (i < n)
        out[i] = entry[0] + sum;
}
