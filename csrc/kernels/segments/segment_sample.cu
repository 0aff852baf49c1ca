/* segment_sample: finds frequent ids in a sample.
 *
 * If one id has a tenth of all elements, the blocks of segment_atomics would queue for its address.
 * One block counts 4096 ids in a hash table, and lists those that occur eight times or more. */
#include "parts/segments.h"

template <typename In, typename Word>
__global__ void __launch_bounds__(GR_SEGMENT_THREADS, 1) segment_sample(gr_segment_job of)
{
    invite_next_kernel();
    wait_for_earlier_kernels();
    unsigned long long *key = shared_array<unsigned long long>(); /* id plus 1; 0: free */
    unsigned *count = reinterpret_cast<unsigned *>(key + GR_SAMPLE_SLOTS);
    gr_segment_state *state = of.state;
    constexpr unsigned each = GR_SAMPLED_IDS / GR_SEGMENT_THREADS;

    if (is_in_rows(of))
        return;
    unsigned long long ids[each]; /* loaded first: the compiler moves no load across an atomic */
    for (unsigned k = 0; k < each; k++) {
        unsigned i = threadIdx.x + k * GR_SEGMENT_THREADS;
        size_t apart = of.rows / GR_SAMPLED_IDS, row = i * apart;
        row += apart ? (i * 2654435761u) % (apart < 0xffffffff ? (unsigned)apart : ~0u) : 0;
        ids[k] = id_at(of, row);
    }
    for (unsigned i = threadIdx.x; i < GR_SAMPLE_SLOTS; i += blockDim.x) {
        key[i] = 0;
        count[i] = 0;
    }
    __syncthreads();
    for (unsigned long long id : ids) {
        if (id >= of.segments)
            continue;
        unsigned slot = unsigned((id + 1) * 0x9e3779b97f4a7c15ull >> 40) % GR_SAMPLE_SLOTS;
        for (;;) {
            unsigned long long found = atomicCAS(key + slot, 0ull, id + 1);
            if (found == 0 || found == id + 1)
                break;
            slot = (slot + 1) % GR_SAMPLE_SLOTS;
        }
        atomicAdd(count + slot, 1u);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < GR_SAMPLE_SLOTS; i += blockDim.x)
        if (count[i] >= GR_SAMPLED_IDS / GR_HOT_IDS)
            state->hot_id[atomicAdd(&state->hot, 1u)] = key[i] - 1;
}
