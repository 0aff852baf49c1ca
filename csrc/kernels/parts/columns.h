/* Sums of a few neighbouring columns by one thread. */
#ifndef GPUREDUCE_KERNEL_COLUMNS_H
#define GPUREDUCE_KERNEL_COLUMNS_H

#include "matrix.h"

/* The columns of one thread: `width` of them, `apart` from each other, the first of which begins at
 * `first`. Rows are `step` elements apart. */
template <typename In, typename Acc, typename Sum = Acc> struct Columns {
    static constexpr unsigned width = Pack<In>::count;
    /* Small integers are added up in 32 bits: a thread gets at most 2^16 rows. */
    static constexpr bool is_small = std::is_integral<In>::value && sizeof(In) < 4;
    using Small = std::conditional_t<std::is_signed<In>::value, int, unsigned>;
    using Part = std::conditional_t<is_small, Small, Sum>;
    static constexpr unsigned at_once =
        std::is_same<Part, double>::value && width > 4 ? 2 : 4; /* for its registers */
    Part sum[width];
    Sizes<In> sizes; /* if the sums are short */

    __device__ __forceinline__ Columns()
    {
        for (unsigned j = 0; j < width; j++)
            sum[j] = 0;
    }

    static __device__ __forceinline__ Pack<unsigned> load(const In *address)
    {
        uint4 bits = *reinterpret_cast<const uint4 *>(address);
        return {{bits.x, bits.y, bits.z, bits.w}};
    }

    __device__ __forceinline__ void add(const Pack<unsigned> &pack)
    {
        In element[width];
        memcpy(element, &pack, sizeof element);
        for (unsigned j = 0; j < width; j++)
            add_short<Acc>(sum[j], sizes, element[j]);
    }

    /* Adds packs of some rows. As add_packs_to() does, it first adds up each column in float64. */
    template <unsigned rows> __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[rows])
    {
        using Short = ShortSum<Acc, In>;
        if constexpr (is_short<Acc, Short> && !is_short<Acc, Sum>) {
            Columns<In, Acc, Short> total;
            UNROLLED
            for (unsigned k = 0; k < rows; k++)
                total.add(pack[k]);
            if (total.sizes.allow(rows)) {
                for (unsigned j = 0; j < width; j++)
                    add_to(sum[j], total.sum[j]);
                return;
            }
            each_in_turn(pack, [&](const Pack<unsigned> &row, unsigned) { add(row); });
        } else
            for (unsigned k = 0; k < rows; k++)
                add(pack[k]);
    }

    /* Adds every `turn`-th row up to `rows`, a pack of each. */
    __device__ __forceinline__ void add_packs(const In *at, int64_t step, size_t r, size_t rows,
                                              unsigned turn)
    {
        constexpr unsigned flight = 8;
        int64_t next = (int64_t)turn * step;
        Pack<unsigned> pack[flight];
        for (; r + (flight - 1) * turn < rows; r += flight * turn, at += flight * next) {
            for (unsigned k = 0; k < flight; k++)
                pack[k] = load(at + k * next);
            add(pack);
        }
        for (unsigned k = 0; k < flight; k++)
            pack[k] = r + k * turn < rows ? load(at + k * next) : Pack<unsigned>{{0, 0, 0, 0}};
        add(pack);
    }

    /* The same by loads of single elements. The thread has every `apart`-th of `left` columns. */
    template <typename Apart>
    __device__ __forceinline__ void add_elements(const In *at, int64_t step, size_t r, size_t rows,
                                                 unsigned turn, Apart apart, size_t left)
    {
        constexpr unsigned flight = 4;
        int64_t next = (int64_t)turn * step;
        for (; r < rows; r += flight * turn, at += flight * next) {
            In element[flight][width];
            memset(element, 0, sizeof element);
            for (unsigned k = 0; k < flight; k++)
                for (unsigned j = 0; j < width; j++)
                    if (r + k * turn < rows && j * apart < left)
                        element[k][j] = at[k * next + j * apart];
            for (unsigned k = 0; k < flight; k++)
                for (unsigned j = 0; j < width; j++)
                    add_short<Acc>(sum[j], sizes, element[k][j]);
        }
    }

    /* Stores the sums of neighbouring columns, the first of which is sum k. */
    __device__ __forceinline__ void put(const Sums<Acc> &out, size_t k) const
    {
        constexpr unsigned wide = Pack<Acc, false>::count;
        if (out.template put_pack<In>(k, sum))
            return;
        if constexpr (is_proven<Acc>)
            each_in_turn(sum, [&](Part one, unsigned j) { out.put_short(k + j, one); });
        else
            for (unsigned j = 0; j < width; j += wide) {
                Acc part[wide];
                for (unsigned i = 0; i < wide; i++)
                    part[i] = Acc(sum[j + i]);
                out.put_all(k + j, part);
            }
    }

    /* The same of sums of so many rows. Returns false if they are short, and one needs a proof. */
    __device__ __forceinline__ bool store(const Sums<Acc> &out, size_t k, size_t rows) const
    {
        bool done = true;
        if constexpr (!is_short<Acc, Sum>) {
            put(out, k);
        } else if (!sizes.allow((unsigned)rows)) {
            done = false;
        } else if (!out.template put_pack<In>(k, sum)) {
            for (unsigned j = 0; j < width; j++)
                done &= out.put_exact(k + j, sum[j]);
        }
        return done;
    }
};

#endif
