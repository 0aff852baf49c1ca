/* Sums of a few neighbouring columns by one thread. */
#pragma once

#include "matrix.h"

/* The columns of one thread: `width` of them, `apart` from each other, the first of which begins at
 * `first`. Rows are `step` elements apart. */
template <typename In, typename Acc, typename Sum = Acc> struct Columns {
    static constexpr unsigned width = Pack<In>::count;
    /* Small integers are added up in 32 bits: a thread gets at most 2^16 rows. */
    static constexpr bool is_small = std::is_integral<In>::value && sizeof(In) < 4;
    using Small = std::conditional_t<std::is_signed<In>::value, int, unsigned>;
    using Part = std::conditional_t<is_small, Small, Sum>;
    static constexpr unsigned at_once = /* packs that fit into registers */
        is_moments<Acc>                                  ? 1
        : std::is_same<Part, double>::value && width > 4 ? 2
                                                         : 4;
    static constexpr unsigned rows_at_once = /* of each of these packs */
        adds_floats<Sum, In>                    ? 8
        : is_short<Acc, Sum> || sizeof(In) == 2 ? 2
                                                : 1;
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
        Pack<In> same;
        memcpy(element, &pack, sizeof element);
        memcpy(&same, &pack, sizeof same);
        if constexpr (is_short<Acc, Sum>)
            sizes.take(same);
        for (unsigned j = 0; j < width; j++)
            add_short<Acc>(sum[j], element[j]);
    }

    /* Adds packs of some rows. As add_packs_to() does, it first adds up each column in float64. */
    template <unsigned rows> __device__ __forceinline__ void add(const Pack<unsigned> (&pack)[rows])
    {
        using Short = ShortSum<Acc, In>;
        if constexpr (adds_floats<Sum, In>) {
            In element[rows][width], column[rows];
            Pack<In> same[rows];
            memcpy(element, pack, sizeof element);
            memcpy(same, pack, sizeof same);
            auto each_column = [&](auto add_column) {
                for (unsigned j = 0; j < width; j++) {
                    for (unsigned k = 0; k < rows; k++)
                        column[k] = element[k][j];
                    add_column(sum[j]);
                }
            };
            if (are_squares_exact(same, rows))
                each_column([&](Sum &to) { add_exactly(to, column); });
            else
                each_column([&](Sum &to) { add_floats(to, column); });
        } else if constexpr (is_short<Acc, Short> && !is_short<Acc, Sum>) {
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
        /* If adding takes as long as loading, the next packs are loaded during additions. */
        constexpr bool ahead = (is_moments<Acc> || is_proven<Sum>)&&(sizeof(In) == 2);
        constexpr unsigned flight = ahead ? 4 : 8;
        int64_t apart = (int64_t)turn * step;
        Pack<unsigned> pack[flight], next[flight];
        auto load_some = [&](Pack<unsigned>(&some)[flight]) {
            for (unsigned k = 0; k < flight; k++)
                some[k] = r + k * turn < rows ? load(at + k * apart) : Pack<unsigned>{{0, 0, 0, 0}};
            r += flight * turn;
            at += flight * apart;
        };
        while (!ahead && r + (flight - 1) * turn < rows) {
            for (unsigned k = 0; k < flight; k++)
                pack[k] = load(at + k * apart);
            r += flight * turn;
            at += flight * apart;
            add(pack);
        }
        load_some(next);
        while (ahead && r < rows) {
            for (unsigned k = 0; k < flight; k++)
                pack[k] = next[k];
            load_some(next);
            add(pack);
        }
        add(next);
    }

    /* The same by loads of single elements. The thread has every `apart`-th of `left` columns,
     * which are `column_step` elements from one to the next. */
    template <typename Apart>
    __device__ __forceinline__ void add_elements(const In *at, int64_t step, size_t r, size_t rows,
                                                 unsigned turn, Apart apart, size_t left,
                                                 int64_t column_step)
    {
        /* Loads of more rows overlap with the slow additions of proven sums. Threads have more sums
         * of small elements, whose registers leave less room. */
        constexpr unsigned flight = sizeof(In) < 4 ? 2 : is_proven<Acc> && sizeof(In) == 4 ? 8 : 4;
        int64_t next = (int64_t)turn * step;
        MOSTLY_ONCE
        for (; r < rows; r += flight * turn, at += flight * next) {
            In element[flight][width];
            memset(element, 0, sizeof element);
            for (unsigned k = 0; k < flight; k++)
                for (unsigned j = 0; j < width; j++)
                    if (r + k * turn < rows && j * apart < left)
                        element[k][j] = (at + k * next)[int64_t(j * apart) * column_step];
            for (unsigned k = 0; k < flight; k++)
                for (unsigned j = 0; j < width; j++)
                    add_short<Acc>(sum[j], sizes, element[k][j]);
        }
    }

    /* Stores the sums of neighbouring columns, the first of which is sum k. Returns a bit for each
     * that has to be added up again. */
    template <typename Terms>
    __device__ __forceinline__ unsigned put(const Sums<Acc> &out, size_t k) const
    {
        unsigned again = 0;
        if (!out.template put_pack<In>(k, sum) && !out.put_native(k, sum))
            each_in_turn(sum, [&](Part one, unsigned j) {
                again |= unsigned(!out.template is_put_short<Terms>(k + j, one)) << j;
            });
        return again;
    }

    /* The same by a warp. `exist`: this lane's columns exist. Columns that must be added up again
     * are distributed so that neighbouring lanes read neighbouring columns. */
    __device__ __forceinline__ void put_across(const Sums<Acc> &out, size_t k, bool exist,
                                               const Strided<In> &terms) const
    {
        unsigned again = exist ? put<Strided<In>>(out, k) : 0, before = threadIdx.x % 32 * width;
        if constexpr (is_proven<Acc>) {
            if (!__any_sync(0xffffffffu, again != 0))
                return;
            MOSTLY_ONCE
            for (unsigned c = threadIdx.x % 32; c < width * 32; c += 32)
                if (__shfl_sync(0xffffffffu, again, int(c / width)) >> c % width & 1)
                    out.put_again(out.place(k - before + c), k - before + c,
                                  Strided<In>{terms.first - before + c, terms.step});
        }
    }

    /* Stores the sums of up to `left` columns, which are `apart` from each other. Each sum is that
     * of one share of the column's rows. */
    __device__ __forceinline__ void put_apart(const Sums<Acc> &out, size_t k, unsigned apart,
                                              size_t left, size_t share, unsigned shares,
                                              const Strided<In> &terms, int64_t column_step) const
    {
        unsigned again = 0;
        each_in_turn(sum, [&](Part one, unsigned j) {
            size_t number = (k + j * apart) * shares + share;
            if (j * apart < left &&
                !out.template is_put<Strided<In>>(out.place(number), number, Acc(one)))
                again |= 1u << j;
        });
        out.put_again(again, k, apart, [&](unsigned j) {
            return Strided<In>{terms.first + int64_t(j * apart) * column_step, terms.step};
        });
    }

    /* Stores the sums of columns of `rows` rows. Returns false if a short sum needs a proof. */
    __device__ __forceinline__ bool store(const Sums<Acc> &out, size_t k, size_t rows,
                                          const Strided<In> &first) const
    {
        bool done = true;
        if constexpr (is_moments<Acc> && is_short<Acc, Sum>)
            done = sizes.allow((unsigned)rows);
        if constexpr (!is_short<Acc, Sum> || is_moments<Acc>) {
            if (!done)
                return false;
            out.put_again(put<Strided<In>>(out, k), k, 1, [&](unsigned j) {
                return Strided<In>{first.first + j, first.step};
            });
        } else if (!sizes.allow((unsigned)rows)) {
            done = false;
        } else if (!out.template put_pack<In>(k, sum)) {
            each_in_turn(sum, [&](Part one, unsigned j) { done &= out.put_exact(k + j, one); });
        }
        return done;
    }
};

/* Blocks of column_tiles, and of column_packs, per multiprocessor, at least: more hide waits for
 * memory, fewer leave more registers. */
template <typename In, typename Acc>
constexpr unsigned blocks_of = !is_proven<Acc>                           ? 3
                               : adds_floats<Acc, In> && sizeof(In) == 2 ? 1
                                                                         : 2;

template <typename In, typename Acc>
constexpr unsigned blocks_of_packs = is_moments<Acc>  ? blocks_of<In, Acc>
                                     : sizeof(In) < 4 ? 3
                                     : is_proven<Acc> ? 2
                                                      : 4;

/* Adds the sums of a block's other teams, `count` each, to those of its first one. */
template <typename Acc>
__device__ __forceinline__ void add_teams(Acc *shared, unsigned teams, unsigned count)
{
    for (unsigned c = threadIdx.x; teams > 1 && c < count; c += blockDim.x) {
        Acc sum = shared[c];
        for (unsigned t = 1; t < teams; t++)
            sum += shared[t * count + c];
        shared[c] = sum;
    }
}

template <typename In, typename Acc>
DEVICE_FUNCTION void add_elements_again(const Matrix<In> &in, const Sums<Acc> &out, size_t batch,
                                        size_t first, size_t apart);

/* Adds up columns `first`, `first + apart`, ... by loads of single elements. All of them exist. */
template <typename Sum, typename In, typename Acc>
__device__ __forceinline__ void add_elements(const Matrix<In> &in, const Sums<Acc> &out,
                                             size_t batch, size_t first, size_t apart)
{
    Columns<In, Acc, Sum> of;
    of.add_elements(in.batch(batch) + first, in.of.row_step, 0, in.of.rows, 1, apart, ~(size_t)0,
                    1);
    if constexpr (is_short<Acc, Sum>)
        if (!of.sizes.allow((unsigned)in.of.rows))
            return add_elements_again(in, out, batch, first, apart);
    size_t number = batch * in.of.columns + first;
    unsigned others = 0; /* a bit for each sum of an unusual type, or that may need a proof */
    UNROLLED
    for (unsigned j = 0; j < of.width; j++)
        if (!out.template put_usual<In>(number + j * apart, of.sum[j]))
            others |= 1u << j;
    if (others)
        each_in_turn(of.sum, [&](auto sum, unsigned j) {
            if (others >> j & 1 && out.template is_put_short<Strided<In>>(number + j * apart, sum))
                others &= ~(1u << j);
        });
    out.put_again(others, number, apart,
                  [&](unsigned j) { return in.terms_of(batch, first + j * apart); });
}

/* Not inlined: it would take registers of the sums that are usually exact. */
template <typename In, typename Acc>
DEVICE_FUNCTION void add_elements_again(const Matrix<In> &in, const Sums<Acc> &out, size_t batch,
                                        size_t first, size_t apart)
{
    add_elements<Acc>(in, out, batch, first, apart);
}

/* Adds up one column. */
template <typename In, typename Acc>
__device__ __forceinline__ void add_column(const Matrix<In> &in, const Sums<Acc> &out, size_t batch,
                                           size_t c)
{
    constexpr unsigned flight = 8;
    const In *at = in.batch(batch) + c;
    Acc sum = 0;
    MOSTLY_ONCE
    for (size_t r = 0; r < in.of.rows; r += flight) {
        In element[flight];
        for (unsigned k = 0; k < flight; k++)
            element[k] = r + k < in.of.rows ? at[(int64_t)(r + k) * in.of.row_step] : In{};
        each_in_turn(element, [&](In x, unsigned) { add_to(sum, x); });
    }
    out.put(batch * in.of.columns + c, sum, in.terms_of(batch, c));
}

/* The exact sum of one float: nan is the positive quiet one, and zero has no sign. */
template <typename T> __device__ __forceinline__ T alone(T x)
{
    using Bits = std::conditional_t<sizeof(T) == 8, unsigned long long,
                                    std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>>;
    gr_format format = gr_format_of((gr_load)load_of<T>());
    Bits bits, infinity = Bits(((1ull << format.exponent) - 1) << format.fraction);
    memcpy(&bits, &x, sizeof bits);
    Bits size = Bits(bits << 1); /* without the sign */
    if (size > Bits(infinity << 1))
        bits = Bits(infinity | 1ull << (format.fraction - 1));
    if (size == 0)
        bits = 0;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Stores the exact sums of a matrix of one row, if they have the elements' type and lie in packs.
 * Otherwise returns false. */
template <typename In, typename Acc>
__device__ __forceinline__ bool copy_row(const Matrix<In> &in, const Sums<Acc> &out)
{
    if constexpr (!is_proven<Acc> || is_moments<Acc> || std::is_integral<In>::value) {
        return false;
    } else {
        constexpr unsigned width = Pack<In>::count, flight = 4;
        const gr_sums &of = out.of;
        size_t packs = in.of.columns / width, turn = (size_t)gridDim.x * blockDim.x * flight;
        if (in.rows() > 1 || of.type != load_of<In>() || of.has_initial || of.is_partial ||
            of.made.is_made || !in.has_whole_packs() || (uintptr_t)of.base % 16 != 0)
            return false;
        for (size_t i = (size_t)blockIdx.x * blockDim.x * flight + threadIdx.x; i < packs;
             i += turn) {
            Pack<In> pack[flight];
            for (unsigned k = 0; k < flight; k++)
                if (i + k * blockDim.x < packs)
                    pack[k] = Packed<const In *>::whole(in.row(0) + (i + k * blockDim.x) * width);
            for (unsigned k = 0; k < flight; k++) {
                In element[width];
                memcpy(element, &pack[k], sizeof element);
                for (In &x : element)
                    x = alone(x);
                memcpy(&pack[k], element, sizeof element);
                if (i + k * blockDim.x < packs)
                    reinterpret_cast<Pack<In> *>(of.base)[i + k * blockDim.x] = pack[k];
            }
        }
        return true;
    }
}
