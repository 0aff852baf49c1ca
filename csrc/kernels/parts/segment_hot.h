/* The segments of a pass, and sums of frequent ids in a block's shared memory. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_HOT_H
#define GPUREDUCE_KERNEL_SEGMENT_HOT_H

#include "segment_words.h"

/* The segments whose sums this pass adds up. */
struct Range {
    uint64_t begin, count;

    __device__ __forceinline__ Range(const gr_segment_job &of, const gr_word_plan &plan)
        : begin(of.pass * plan.per_pass),
          count(plan.per_pass < of.segments - begin ? plan.per_pass : of.segments - begin)
    {
    }

    /* Whether this pass has an id. Notes an id that no segment has. */
    __device__ __forceinline__ bool has(const gr_segment_job &of, unsigned long long id,
                                        size_t row) const
    {
        if (id - begin < count)
            return true;
        if (id >= of.segments)
            note_place(&of.state->bad, row);
        return false;
    }

    /* The place of a sum's first word. It means nothing for an id that this pass does not have. */
    __device__ __forceinline__ uint64_t place_of(const gr_segment_job &of, const gr_word_plan &plan,
                                                 unsigned long long id, uint64_t c) const
    {
        return ((id - begin) * of.columns + c) * plan.sum_step;
    }

    __device__ __forceinline__ unsigned long long *words_of(const gr_segment_job &of,
                                                            const gr_word_plan &plan,
                                                            unsigned long long id, uint64_t c) const
    {
        unsigned long long *words = reinterpret_cast<unsigned long long *>(of.words);
        return words + place_of(of, plan, id, c);
    }
};

/* If all values of a warp go to one word, returns their sum in the first lane, and 0 in others. It
 * wraps around, as sums of integers do. */
__device__ __forceinline__ long long sum_for_one_word(long long value, bool is_there,
                                                      unsigned long long at)
{
    unsigned long long first = __shfl_sync(0xffffffffu, at, 0);
    if (!__all_sync(0xffffffffu, is_there && at == first))
        return value;
    unsigned long long sum = warp_sum((unsigned long long)value);
    return threadIdx.x % 32 ? 0 : (long long)sum;
}

/* A hash table with two slots per hash value. */
struct Hot {
    unsigned long long *id; /* plus 1; 0: a free slot */
    SharedWords sums;
    unsigned words;
    bool is_used;

    __device__ __forceinline__ Hot(const gr_segment_job &of, const gr_word_plan &plan)
        : id(shared_array<unsigned long long>()),
          sums(reinterpret_cast<unsigned *>(id + GR_HOT_SLOTS),
               GR_HOT_SLOTS * GR_HOT_COPIES * plan.words),
          words(plan.words), is_used(of.state->hot > 0 && plan.words <= 2)
    {
        if (!is_used)
            return;
        for (unsigned i = threadIdx.x; i < GR_HOT_SLOTS; i += blockDim.x)
            id[i] = 0;
        for (unsigned i = threadIdx.x; i < 2 * GR_HOT_SLOTS * GR_HOT_COPIES * words;
             i += blockDim.x)
            sums.low[i] = 0;
        __syncthreads();
        for (unsigned i = threadIdx.x; i < of.state->hot; i += blockDim.x) {
            unsigned long long key = of.state->hot_id[i] + 1;
            unsigned slot = slot_of(key);
            if (atomicCAS(id + slot, 0ull, key) != 0)
                atomicCAS(id + slot + 1, 0ull, key);
        }
        __syncthreads();
    }

    __device__ __forceinline__ static unsigned slot_of(unsigned long long key)
    {
        return unsigned(key * 0x9e3779b97f4a7c15ull >> 40) % (GR_HOT_SLOTS / 2) * 2;
    }

    /* The slot of an id, or GR_HOT_SLOTS. */
    __device__ __forceinline__ unsigned find(unsigned long long wanted) const
    {
        if (!is_used)
            return GR_HOT_SLOTS;
        unsigned slot = slot_of(wanted + 1);
        return id[slot] == wanted + 1       ? slot
               : id[slot + 1] == wanted + 1 ? slot + 1
                                            : (unsigned)GR_HOT_SLOTS;
    }

    /* Word k of a slot: lanes take different copies. */
    __device__ __forceinline__ unsigned place(unsigned slot, unsigned k) const
    {
        return (slot * GR_HOT_COPIES + threadIdx.x % GR_HOT_COPIES) * words + k;
    }

    /* Adds to word k of a sum: to this block's, if the sum has a slot. */
    __device__ __forceinline__ void add(const gr_segment_job &of, const gr_word_plan &plan,
                                        unsigned slot, unsigned long long *word, unsigned k,
                                        long long value) const
    {
        bool is_checked = plan.checked && k + 1 == plan.words;
        if (slot < GR_HOT_SLOTS)
            sums.add(of.state, place(slot, k), value, is_checked);
        else
            add_to_word(of.state, word + k, value, is_checked);
    }

    /* Adds the sums to those of all blocks. */
    __device__ __forceinline__ void leave(const gr_segment_job &of, const gr_word_plan &plan,
                                          const Range &range) const
    {
        if (!is_used)
            return;
        __syncthreads();
        for (unsigned i = threadIdx.x; i < GR_HOT_SLOTS * GR_HOT_COPIES * words; i += blockDim.x) {
            unsigned k = i % words, slot = i / words / GR_HOT_COPIES;
            long long sum = sums.get(i);
            if (sum)
                add_to_word(of.state, range.words_of(of, plan, id[slot] - 1, 0) + k, sum,
                            plan.checked && k + 1 == words);
        }
    }
};

#endif
