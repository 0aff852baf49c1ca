/* Sums of frequent ids in a block's shared memory. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_HOT_H
#define GPUREDUCE_KERNEL_SEGMENT_HOT_H

#include "segment_words.h"

/* The sums of frequent ids: a table of two slots per hash. */
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
        unsigned slot = slot_of(wanted + 1);
        return id[slot] == wanted + 1       ? slot
               : id[slot + 1] == wanted + 1 ? slot + 1
                                            : (unsigned)GR_HOT_SLOTS;
    }

    __device__ __forceinline__ unsigned place(unsigned slot, unsigned copy, unsigned k) const
    {
        return (slot * GR_HOT_COPIES + copy) * words + k;
    }
};

#endif
