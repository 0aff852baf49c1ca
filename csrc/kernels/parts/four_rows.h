/* Exact sums of four short rows by a warp. */
#pragma once

#include "matrix.h"

/* The number of a row's elements in front of its first whole pack. */
template <typename In> __device__ __forceinline__ unsigned head_of(const In *row)
{
    return unsigned(-reinterpret_cast<uintptr_t>(row) / sizeof(In)) % Pack<In>::count;
}

/* Adds up rows r to r + 3, as far as they exist. A row has at least one pack. Pairs of lanes
 * exchange sums of different rows, so that a row takes fewer additions of sums. If additions of Sum
 * might round, stores nothing and returns false in all lanes. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ bool add_four(const Matrix<In> &in, const Sums<Acc> &out, size_t r)
{
    constexpr unsigned width = Pack<In>::count;
    size_t columns = in.of.columns, packs = columns / width, rows = in.rows();
    unsigned lane = threadIdx.x % 32, fewer = 0; /* a bit for each row that has one pack less */
    const In *row[4];
    Sum sum[4];
    Sizes<In> sizes;
    for (unsigned k = 0; k < 4; k++) {
        sum[k] = 0;
        row[k] = in.row(r + k < rows ? r + k : rows - 1);
        fewer |= unsigned(columns % width < head_of(row[k])) << k;
    }
    for (size_t i = lane; i - lane < packs; i += 32) {
        Pack<In> pack[4];
        for (unsigned k = 0; k < 4; k++) {
            memset(&pack[k], 0, sizeof pack[k]);
            if (i + (fewer >> k & 1) < packs)
                pack[k] = Packed<const In *>::whole(row[k] + head_of(row[k]) + i * width);
        }
        for (unsigned k = 0; k < 4; k++)
            add_short<Acc>(sum[k], sizes, pack[k]);
    }
    for (unsigned k = 0; k < 4; k++) {
        size_t inner = (packs - (fewer >> k & 1)) * width;
        if (lane < columns - inner)
            add_short<Acc>(sum[k], sizes, row[k][lane < head_of(row[k]) ? lane : lane + inner]);
    }
    if constexpr (is_short<Acc, Sum>)
        if (!sizes.allow_in_warp((unsigned)columns))
            return false;
    unsigned mine = exchange_sums(sum, 32, lane);
    bool is_done =
        lane % 8 || r + mine >= rows || out.template is_put_short<Strided<In>>(r + mine, sum[0]);
    if (!__all_sync(0xffffffffu, is_done))
        put_rows_again<Strided<In>>(in, out, !is_done, r + mine, 1);
    return true;
}
