/* bulk_copy: bulk asynchronous copies into a ring in shared memory.
 *
 * In tiles, each thread computes addresses and issues loads, and the registers reserved for loads
 * limit the bytes in flight. Since Hopper (compute capability 9.0) one thread can start the copy of
 * a whole tile, 32 KiB, to shared memory while the others add up earlier tiles. Six tiles make a
 * ring, so about 160 KiB are always in flight to each multiprocessor.
 *
 * Still wasted: almost nothing for large arrays; small sums end before the ring is full. */
#include "parts/common.h"

template <typename In, typename Acc>
__global__ void bulk_copy(In in, Acc *out, size_t n, Marked<Acc> *work, unsigned *ticket)
{
    constexpr unsigned stages = 6, tile = 2048, bytes = 16 * tile; /* a tile is 2048 packs */
    Packed<In> packed(in, n);
    auto *ring = shared_array<decltype(packed[0])>();
    auto *arrived = reinterpret_cast<CopyBarrier *>(ring + stages * tile);
    unsigned tid = threadIdx.x;
    /* A copy takes longer if it does not begin at a memory line. */
    size_t lead = packed.before_line(), tiles = (packed.packs - lead) / tile;

    invite_next_kernel();
    wait_for_earlier_kernels();
    if (tid == 0)
        for (unsigned stage = 0; stage < stages; stage++) {
            copy_barrier_init(&arrived[stage]);
            size_t t = blockIdx.x + (size_t)stage * gridDim.x;
            if (t < tiles)
                copy_start(ring + stage * tile, packed.address(lead + t * tile), bytes,
                           &arrived[stage]);
        }
    __syncthreads();

    /* Adds the elements outside the tiles while the first tiles are in flight. */
    size_t id = (size_t)blockIdx.x * blockDim.x + tid;
    Acc sum = loose_ends<Acc>(in, n, packed, id);
    if (id < lead)
        sum += sum_of<Acc>(packed[id]);
    for (size_t i = lead + tiles * tile + id; i < packed.packs; i += (size_t)gridDim.x * blockDim.x)
        sum += sum_of<Acc>(packed[i]);

    unsigned stage = 0, round = 0;
    for (size_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        copy_wait(&arrived[stage], round % 2);
        for (unsigned i = tid; i < tile; i += blockDim.x)
            sum += sum_of<Acc>(packed.whole(ring + stage * tile + i));
        __syncthreads(); /* the stage is free: all have read it */
        size_t next = t + (size_t)stages * gridDim.x;
        if (tid == 0 && next < tiles)
            copy_start(ring + stage * tile, packed.address(lead + next * tile), bytes,
                       &arrived[stage]);
        if (++stage == stages) {
            stage = 0;
            round++;
        }
    }

    __syncthreads(); /* block_sum uses the ring's memory */
    finish_in_last_block(block_sum(sum), out, work, ticket);
}
