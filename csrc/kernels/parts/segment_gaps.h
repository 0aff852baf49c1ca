/* Offsets of empty segments between sorted ids. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_GAPS_H
#define GPUREDUCE_KERNEL_SEGMENT_GAPS_H

#include "segments.h"

/* Ranges of empty segments, which all threads of a block fill in together. */
struct Gaps {
    static constexpr unsigned most = 64, narrow = 8;
    unsigned count;
    uint64_t begin[most], end[most], value[most];
};

__device__ __forceinline__ void fill(uint64_t *offsets, uint64_t begin, uint64_t end,
                                     uint64_t value, unsigned member, unsigned members)
{
    for (uint64_t k = begin + member; k < end; k += members)
        offsets[k] = value;
}

/* Returns whether the block has to fill in a gap. */
__device__ __forceinline__ bool put_offsets(Gaps *gaps, uint64_t *offsets, uint64_t begin,
                                            uint64_t end, uint64_t value)
{
    unsigned i = Gaps::most;
    if (end - begin > Gaps::narrow)
        i = atomicAdd(&gaps->count, 1u);
    if (i >= Gaps::most) {
        fill(offsets, begin, end, value, 0, 1);
        return end - begin > Gaps::narrow;
    }
    gaps->begin[i] = begin;
    gaps->end[i] = end;
    gaps->value[i] = value;
    return true;
}

#endif
