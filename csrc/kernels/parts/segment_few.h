/* Segments of few rows, which each block finds for itself: kernels segment_few and
 * segment_few_packs. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_FEW_H
#define GPUREDUCE_KERNEL_SEGMENT_FEW_H

#include "segment_blocks.h"

/* The sums of one block. Their segments are numbered from 0. */
struct FewJob : gr_segment_job {
    unsigned count; /* of segments */
    unsigned *longs, *long_count;
};

__device__ __forceinline__ uint64_t threads_of(const FewJob &)
{
    return blockDim.x;
}

__device__ __forceinline__ uint64_t thread_of(const FewJob &)
{
    return threadIdx.x;
}

__device__ __forceinline__ uint64_t numbers_of(const FewJob &of)
{
    return of.count;
}

/* Notes long segments, which the block adds up in the end. */
__device__ __forceinline__ void put_tasks(const FewJob &of, unsigned lanes, bool is_long,
                                          uint64_t number, const Bounds &)
{
    if (is_long && threadIdx.x % lanes == 0)
        of.longs[atomicAdd(of.long_count, 1u)] = (unsigned)number;
}

/* What a block has in shared memory. A hash table has its segments. */
struct FewRows {
    static constexpr unsigned SLOTS = 2 * GR_FEW_SEGMENTS, NO_SLOT = SLOTS;
    FewJob job;
    unsigned long long key[SLOTS];                   /* segments; ~0 in free slots */
    unsigned first[SLOTS], count[SLOTS], end[SLOTS]; /* of their rows */
    gr_own_segment own[GR_FEW_SEGMENTS];
    unsigned longs[GR_FEW_SEGMENTS];
    unsigned long_count, any_unproven, found, claimed;

    static __device__ __forceinline__ unsigned first_slot(uint64_t k)
    {
        return unsigned(k * 0x9e3779b97f4a7c15ull >> 32) % SLOTS;
    }

    __device__ __forceinline__ void add(unsigned long long k)
    {
        for (unsigned slot = first_slot(k);; slot = (slot + 1) % SLOTS) {
            unsigned long long before = atomicCAS(&key[slot], ~0ull, k);
            if (before == ~0ull || before == k)
                return;
        }
    }

    /* The slot of segment k. Without `by_row` the block has neighbouring segments, from `from` on.
     */
    __device__ __forceinline__ unsigned slot_of(uint64_t k, uint64_t from) const
    {
        if (!job.by_row)
            return k - from < job.count ? unsigned(k - from) : NO_SLOT;
        unsigned slot = first_slot(k);
        while (key[slot] != k && key[slot] != ~0ull)
            slot = (slot + 1) % SLOTS;
        return key[slot] == k ? slot : NO_SLOT;
    }
};

/* Prepares the sums of this block: finds the rows of its segments. The memory behind FewRows has
 * marks of unproven sums, the rows found with their slots, and the rows in order. Returns false if
 * an id is wrong. */
__device__ __forceinline__ bool find_rows(const gr_segment_job &of, FewRows &few)
{
    constexpr unsigned flight = GR_FEW_ROWS / 256;
    unsigned *marks = reinterpret_cast<unsigned *>(&few + 1);
    unsigned *found = marks + gr_few_marks(&of), *order = found + of.rows;
    uint64_t first = (uint64_t)blockIdx.x * of.few, left = numbers_of(of) - first;
    unsigned count = left < of.few ? (unsigned)left : of.few, thread = threadIdx.x;
    unsigned long long id[flight], k = first + thread;
    bool is_wrong = false;

    if (of.by_row && thread < count)
        k = index_at(of.index, k);
    for (unsigned j = 0; j < flight && j * blockDim.x < of.rows; j++) {
        unsigned row = thread + j * blockDim.x;
        id[j] = row < of.rows ? index_at(of.index, row) : 0;
    }
    for (unsigned i = thread; i < FewRows::SLOTS; i += blockDim.x) {
        few.key[i] = ~0ull;
        few.first[i] = ~0u;
        few.count[i] = 0;
    }
    for (unsigned i = thread; i < gr_few_marks(&of); i += blockDim.x)
        marks[i] = 0;
    if (thread == 0) {
        few.long_count = few.any_unproven = few.found = few.claimed = 0;
        static_cast<gr_segment_job &>(few.job) = of;
        few.job.try_sorted = 0;
        few.job.order = order;
        few.job.sums.unproven = marks;
        few.job.sums.any_unproven = &few.any_unproven;
        few.job.own = few.own;
        few.job.count = count;
        few.job.longs = few.longs;
        few.job.long_count = &few.long_count;
    }
    __syncthreads();
    if (thread < count) {
        few.own[thread].k = k = k < of.segments ? k : of.segments - 1;
        if (of.by_row)
            few.add(k);
    }
    if (of.by_row)
        __syncthreads();
    for (unsigned j = 0; j < flight && j * blockDim.x < of.rows; j++) {
        unsigned row = thread + j * blockDim.x;
        unsigned slot = row < of.rows ? few.slot_of(id[j], first) : FewRows::NO_SLOT;
        is_wrong |= id[j] >= of.segments;
        if (slot == FewRows::NO_SLOT)
            continue;
        atomicAdd(&few.count[slot], 1u);
        atomicMin(&few.first[slot], row);
        found[atomicAdd(&few.found, 1u)] = slot << 16 | row;
    }
    if (__syncthreads_or(is_wrong)) {
        if (of.stops)
            __trap();
        return false;
    }
    for (unsigned i = thread; i < FewRows::SLOTS; i += blockDim.x)
        few.end[i] = few.count[i] ? atomicAdd(&few.claimed, few.count[i]) : 0;
    __syncthreads();
    for (unsigned i = thread; i < few.found; i += blockDim.x)
        order[atomicAdd(&few.end[found[i] >> 16], 1u)] = found[i] & 0xffff;
    __syncthreads();
    if (thread < count) {
        unsigned slot = few.slot_of(k, first), end = few.end[slot];
        bool is_first = !of.by_row || few.first[slot] == first + thread;
        few.own[thread].begin = is_first ? end - few.count[slot] : 0;
        few.own[thread].end = is_first ? end : 0;
    }
    __syncthreads();
    return true;
}

/* The block's shared memory for these, behind what sums of a block take. */
template <typename Acc> __device__ __forceinline__ FewRows &few_rows()
{
    static_assert(256 * sizeof(Acc) <= GR_FEW_ROOM, "block_sums() takes so much memory");
    static_assert(sizeof(FewRows) <= GR_FEW_BYTES, "the engine gives so much memory");
    return *reinterpret_cast<FewRows *>(shared_array<char>() + GR_FEW_ROOM);
}

#endif
