/* Checks of offsets, and offsets of empty segments between sorted ids. */
#ifndef GPUREDUCE_KERNEL_SEGMENT_GAPS_H
#define GPUREDUCE_KERNEL_SEGMENT_GAPS_H

#include "segments.h"

/* Checks the caller's offsets. index(k): offset k. */
template <typename Index>
__device__ __forceinline__ void check_offsets(const gr_segment_job &of, Index index)
{
    constexpr unsigned flight = 4;
    size_t threads = (size_t)gridDim.x * blockDim.x;
    for (size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x; at <= of.segments;
         at += threads * flight) {
        unsigned long long here[flight], next[flight];
        for (unsigned i = 0; i < flight; i++) {
            size_t k = at + i * threads;
            here[i] = k <= of.segments ? index(k) : of.rows;
            next[i] = k < of.segments ? index(k + 1) : of.rows;
        }
        for (unsigned i = 0; i < flight; i++) {
            size_t k = at + i * threads;
            bool begins = k > 0 || here[i] == 0, ends = k != of.segments || here[i] == of.rows;
            if (next[i] < here[i] || !begins || !ends)
                note_place(&of.state->bad, k);
        }
    }
}

/* Ranges of empty segments, which all threads of a block fill in together. */
struct Gaps {
    static constexpr unsigned most = 64, narrow = 8;
    unsigned count;
    uint64_t begin[most], end[most], value[most];
};

__device__ __forceinline__ void fill(uint64_t *offsets, uint64_t begin, uint64_t end,
                                     uint64_t value, unsigned member, unsigned members)
{
    MOSTLY_ONCE
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

/* Stores where segments begin between the ids of two neighbouring rows, and after the last row.
 * Returns whether the block has to fill in a gap. */
__device__ __forceinline__ bool put_bounds(const gr_segment_job &of, Gaps *gaps, size_t row,
                                           unsigned long long before, unsigned long long id)
{
    bool has_gaps = false;
    if (id >= of.segments)
        return false;
    if (row == 0 || id > before)
        has_gaps |= put_offsets(gaps, of.offsets, row ? before + 1 : 0, id + 1, row);
    if (row == of.rows - 1)
        has_gaps |= put_offsets(gaps, of.offsets, id + 1, of.segments + 1, of.rows);
    return has_gaps;
}

/* Fills in the gaps that the block's threads have found. */
__device__ __forceinline__ void fill_all(const gr_segment_job &of, Gaps *gaps)
{
    unsigned count = gaps->count < Gaps::most ? gaps->count : Gaps::most;
    for (unsigned i = 0; i < count; i++)
        fill(of.offsets, gaps->begin[i], gaps->end[i], gaps->value[i], threadIdx.x, blockDim.x);
    __syncthreads();
    if (threadIdx.x == 0)
        gaps->count = 0;
    __syncthreads();
}

#endif
