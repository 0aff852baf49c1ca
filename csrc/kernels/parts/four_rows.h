/* Sums of four short rows at once, by a warp or a group of its lanes. */
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
    put_rows_again<Strided<In>>(in, out, !is_done, r + mine, 1);
    return true;
}

template <typename In, typename Acc>
DEVICE_FUNCTION void add_groups_again(const Matrix<In> &in, const Sums<Acc> &out, size_t r,
                                      unsigned lanes);

/* Adds up four rows by groups of lanes: rows `r`, `r + apart`, ... If additions of Sum might round,
 * all lanes start again with Acc. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ void add_groups(const Matrix<In> &in, const Sums<Acc> &out, size_t r,
                                           unsigned lanes)
{
    constexpr unsigned flight = 4, ahead = is_proven<Sum> ? (adds_floats<Acc, In> ? 4 : 2) : 1;
    size_t rows = in.rows(), packs = in.of.columns / Pack<In>::count;
    unsigned member = threadIdx.x % lanes, apart = 32 / lanes;
    const In *row[flight];
    Sum sum[flight];
    Sizes<In> sizes;
    for (unsigned k = 0; k < flight; k++) {
        sum[k] = 0;
        row[k] = in.row(r + k * apart < rows ? r + k * apart : rows - 1);
    }
    for (size_t i = member; i - member < packs; i += ahead * lanes) {
        Pack<In> pack[flight][ahead];
        memset(pack, 0, sizeof pack);
        for (unsigned j = 0; j < ahead * flight; j++) {
            size_t p = i + j % ahead * lanes;
            if (p < packs)
                pack[j / ahead][j % ahead] =
                    Packed<const In *>::whole(row[j / ahead] + p * Pack<In>::count);
        }
        UNROLLED
        for (unsigned k = 0; k < flight; k++)
            add_short<Acc>(sum[k], sizes, pack[k]);
    }
    if constexpr (is_short<Acc, Sum>)
        if (!sizes.allow_in_warp((unsigned)in.of.columns)) {
            if constexpr (is_moments<Acc>)
                return add_groups<Acc>(in, out, r, lanes);
            else
                return add_groups_again(in, out, r, lanes);
        }
    unsigned mine = exchange_sums(sum, lanes, member), count = lanes < flight ? flight : 1;
    bool stores = member % (lanes < flight ? lanes : lanes / flight) == 0;
    size_t number = r + mine * apart;
    unsigned again = 0; /* a bit for each sum that is not proven */
    for (unsigned k = 0; k < flight; k++)
        if (stores && k < count && number + k * apart < rows &&
            !out.template is_put_short<Strided<In>>(number + k * apart, sum[k]))
            again |= 1u << k;
    put_rows_again<Strided<In>>(in, out, again, number, apart);
}

/* Not inlined: it would take registers of the sums that are usually exact. */
template <typename In, typename Acc>
DEVICE_FUNCTION void add_groups_again(const Matrix<In> &in, const Sums<Acc> &out, size_t r,
                                      unsigned lanes)
{
    add_groups<Acc>(in, out, r, lanes);
}
