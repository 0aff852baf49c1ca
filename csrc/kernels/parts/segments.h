/* Sums by segment: access to values, ids and sums. */
#ifndef GPUREDUCE_KERNEL_SEGMENTS_H
#define GPUREDUCE_KERNEL_SEGMENTS_H

#include "elements.h"
#include "matrix.h"
#include "shared/segment_sums.h"

__device__ __forceinline__ int64_t column_offset(const gr_rows &of, uint64_t c)
{
    if (of.parts == 1)
        return (int64_t)c * of.number_step;
    return (int64_t)(c / 2) * of.number_step + (int64_t)(c % 2) * of.part_step;
}

/* The id or offset at an address. Negative numbers become large ones. */
__device__ __forceinline__ unsigned long long index_from(const char *at, gr_load load)
{
    const void *from = at;
    if (load == GR_LOAD_u64) /* mostly, and a switch takes longer */
        return *static_cast<const unsigned long long *>(from);
    switch (load) {
    case GR_LOAD_i8: return (unsigned long long)(long long)*static_cast<const int8_t *>(from);
    case GR_LOAD_u8: return *static_cast<const uint8_t *>(from);
    case GR_LOAD_i16: return (unsigned long long)(long long)*static_cast<const int16_t *>(from);
    case GR_LOAD_u16: return *static_cast<const uint16_t *>(from);
    case GR_LOAD_i32: return (unsigned long long)(long long)*static_cast<const int32_t *>(from);
    default: return *static_cast<const uint32_t *>(from);
    }
}

/* Number i of the ids or offsets. */
__device__ __forceinline__ unsigned long long index_at(const gr_index &of, size_t i)
{
    return index_from(static_cast<const char *>(of.base) + (int64_t)i * of.step, of.load);
}

/* Calls use(index), where index(i) is number i, if the numbers are of a usual type: a switch before
 * each load would keep loads from being in flight together. Returns whether they are. */
template <typename Use>
__device__ __forceinline__ bool with_usual_index(const gr_index &of, Use use)
{
    if (of.load == GR_LOAD_u64 && of.step == 8) {
        const unsigned long long *at = static_cast<const unsigned long long *>(of.base);
        use([at](size_t i) { return __ldcs(at + i); });
        return true;
    }
    if (of.load == GR_LOAD_i32 && of.step == 4) {
        const int *at = static_cast<const int *>(of.base);
        use([at](size_t i) { return (unsigned long long)(long long)__ldcs(at + i); });
        return true;
    }
    return false;
}

/* Returns `bits`: 2^bits lanes take neighbouring columns. */
__device__ __forceinline__ unsigned column_lane_bits(uint64_t columns)
{
    unsigned bits = 0;
    while (bits < 5 && 1u << bits < columns)
        bits++;
    return bits;
}

__device__ __forceinline__ unsigned column_lanes(uint64_t columns)
{
    return 1u << column_lane_bits(columns);
}

/* Notes the first place of something wrong. */
__device__ __forceinline__ void note_place(uint64_t *first, size_t place)
{
    atomicMax(reinterpret_cast<unsigned long long *>(first), ~(unsigned long long)place);
}

/* Notes the first of the places that the lanes of a warp have found; ~0 stands for none. */
__device__ __forceinline__ void note_first_place(uint64_t *first, size_t place)
{
    if (!__any_sync(0xffffffffu, place != ~(size_t)0))
        return;
    for (unsigned offset = 16; offset > 0; offset /= 2) {
        size_t other = __shfl_xor_sync(0xffffffffu, (unsigned long long)place, offset);
        place = other < place ? other : place;
    }
    if (threadIdx.x % 32 == 0)
        note_place(first, place);
}

/* Ends all kernels of the process if an id is wrong and no caller checks for that. */
__device__ __forceinline__ void stop_if_wrong(const gr_segment_job &of)
{
    if (of.stops && of.state->bad)
        __trap();
}

/* Whether rows have to be put in order. */
__device__ __forceinline__ bool needs_order(const gr_segment_job &of)
{
    return of.order && (!of.try_sorted || of.state->unsorted);
}

/* Whether segment_rows is to add up. */
__device__ __forceinline__ bool is_in_rows(const gr_segment_job &of)
{
    return !of.sums.as_digits &&
           (of.by_offsets || of.order || (of.try_sorted && !of.state->unsorted));
}

/* The segment of a row: the last one whose offset is not above it. It is one of the job's segments
 * whatever the offsets are. */
__device__ __forceinline__ unsigned long long segment_at(const gr_segment_job &of, size_t row)
{
    uint64_t first = 0, end = of.segments;
    while (end - first > 1) {
        uint64_t middle = first + (end - first) / 2;
        if (index_at(of.index, middle) <= row)
            first = middle;
        else
            end = middle;
    }
    return first;
}

/* The same by ids or by offsets. */
__device__ __forceinline__ unsigned long long id_at(const gr_segment_job &of, size_t row)
{
    return of.by_offsets ? segment_at(of, row) : index_at(of.index, row);
}

/* Calls use(is_there, row, column, id, value) for all values, in flights whose loads do not wait
 * for each other. All threads of a block call it equally often. `IndexAt` reads the ids. Each value
 * is read once, so the loads do not displace sums from the L2 cache. */
template <unsigned flight, typename In, typename IndexAt, typename Use>
__device__ __forceinline__ void for_each_value(const gr_segment_job &of, IndexAt index, Use use)
{
    unsigned lanes = column_lanes(of.columns), at_once = blockDim.x / lanes;
    size_t turn = (size_t)gridDim.x * at_once * flight;

    for (uint64_t tile = (uint64_t)blockIdx.y * lanes; tile < of.columns;
         tile += (uint64_t)gridDim.y * lanes) {
        uint64_t c = tile + threadIdx.x % lanes;
        const char *column =
            static_cast<const char *>(of.values.base) + column_offset(of.values, c);
        size_t rows = c < of.columns ? of.rows : 0;
        for (size_t base = (size_t)blockIdx.x * at_once * flight; base < of.rows; base += turn) {
            size_t first = base + threadIdx.x / lanes;
            unsigned long long id[flight];
            In value[flight];
            for (unsigned k = 0; k < flight; k++) {
                size_t row = first + k * at_once;
                id[k] = 0;
                value[k] = In{};
                if (row < rows) {
                    id[k] = index(row);
                    value[k] = __ldcs(
                        reinterpret_cast<const In *>(column + (int64_t)row * of.values.row_step));
                }
            }
            for (unsigned k = 0; k < flight; k++) {
                size_t row = first + k * at_once;
                use(row < rows, row, c, id[k], value[k]);
            }
        }
    }
}

/* The same with the job's ids, or with ids found in its offsets. */
template <unsigned flight, typename In, typename Use>
__device__ __forceinline__ void for_each_value(const gr_segment_job &of, Use use)
{
    auto any = [&of](size_t row) { return id_at(of, row); };
    auto usual = [&](auto index) { for_each_value<flight, In>(of, index, use); };
    if (of.by_offsets || !with_usual_index(of.index, usual))
        for_each_value<2, In>(of, any, use);
}

#endif
