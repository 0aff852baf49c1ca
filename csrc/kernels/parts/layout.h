/* Elements of arrays with any dimensions, steps and types. */
#pragma once

#include "elements.h"
#include "products.h"

/* The distance of entry `i` of some dimensions from the first entry. */
struct Place {
    int64_t in, mask, out;

    __device__ __forceinline__ Place(const gr_layout_dim *dim, int dims, size_t i)
        : in(0), mask(0), out(0)
    {
        MOSTLY_ONCE
        for (int d = dims - 1; d >= 0; d--) {
            int64_t at = d > 0 ? int64_t(i % dim[d].size) : int64_t(i);
            if (d > 0)
                i /= dim[d].size;
            in += at * dim[d].in;
            mask += at * dim[d].mask;
            out += at * dim[d].out;
        }
    }
};

/* The element `distance` bytes from the first one, converted to the type that is added to Acc. */
template <typename Acc>
__device__ __forceinline__ typename Addend<Acc>::type of_layout(const gr_layout &of,
                                                                int64_t distance)
{
    const void *address = static_cast<const char *>(of.base) + distance;
    return element_at<typename Addend<Acc>::type>(address, 0, of.load);
}

/* The elements of a group, of which there are `terms` along the reduced dimensions. */
struct TermRange {
    size_t begin, end;

    __device__ __forceinline__ TermRange(const gr_layout &of, const Place &group, size_t terms)
        : begin(0), end(terms)
    {
        if (of.ranges.kind == GR_RANGE_ALL)
            return;
        bool are_windows = of.ranges.kind == GR_RANGE_WINDOWS;
        int64_t last = int64_t(terms);
        int64_t at = group.mask * of.ranges.step;
        int64_t from = are_windows ? at + of.ranges.first : of.ranges.offset[at];
        int64_t to = are_windows ? from + of.ranges.size : of.ranges.offset[at + 1];
        end = size_t(to < 0 ? 0 : to < last ? to : last); /* even if offsets are wrong */
        begin = from < 0 ? 0 : size_t(from) < end ? size_t(from) : end;
    }

    /* Where a share of the elements begins. */
    __device__ __forceinline__ size_t at(size_t share, size_t shares) const
    {
        return begin + (end - begin) * share / shares;
    }
};

/* Some elements of a group: from `begin` to `end`, of which a thread has every `step`-th. */
struct Turn {
    size_t begin, end;
    unsigned member, step;
};

/* Calls use(x, y) for a thread's elements of two arrays without gaps, of equal alignment: also with
 * arrays of several elements, the last of which may be zeros. */
template <typename T, typename Use>
__device__ __forceinline__ void each_pack(const T *x, const T *y, const Turn &turn, Use use)
{
    constexpr unsigned width = Pack<T>::count, flight = width > 4 ? 1 : 2;
    constexpr bool ahead = flight == 1; /* loads the next packs while it adds these */
    size_t n = turn.end - turn.begin, last = n - 1 - turn.member;
    Packed<const T *> of_x(x + turn.begin, n), of_y(y + turn.begin, n);
    Pack<T> packs[2][flight];
    auto load = [&](size_t i) {
        for (unsigned k = 0; k < flight; k++) {
            packs[0][k] = of_x.or_zero(i + k * turn.step, of_x.packs);
            packs[1][k] = of_y.or_zero(i + k * turn.step, of_x.packs);
        }
    };
    if (turn.member < of_x.head)
        use(x[turn.begin + turn.member], y[turn.begin + turn.member]);
    if (turn.member < of_x.tail)
        use(x[turn.begin + last], y[turn.begin + last]);
    if (ahead)
        load(turn.member);
    MOSTLY_ONCE
    for (size_t i = turn.member; i < of_x.packs; i += flight * turn.step) {
        T elements[2][flight * width];
        if (!ahead)
            load(i);
        memcpy(elements, packs, sizeof elements);
        if (ahead)
            load(i + turn.step);
        use(elements[0], elements[1]);
    }
}

/* Calls use(x, y) for a thread's elements of a group. For products, y is an element of the other
 * array; otherwise it is x. Several loads are in flight. */
template <typename T, bool by_packs, typename Use>
__device__ __forceinline__ void each_strided(const gr_layout &of, const Place &first,
                                             const Turn &turn, Use use)
{
    constexpr unsigned flight = by_packs ? 8 : 2;
    const gr_layout_dim &dim = of.dim[of.kept];
    bool has_factors = of.term >= GR_TERM_PRODUCT;
    const char *x_at = static_cast<const char *>(of.base) + first.in, *y_at = x_at;
    int64_t x_step = dim.in, y_step = has_factors ? dim.mask : dim.in;
    if (has_factors)
        y_at = reinterpret_cast<const char *>(of.mask) + first.mask;
    bool are_packs = x_step == sizeof(T) && y_step == sizeof(T) && turn.step >= Pack<T>::count;
    if constexpr (by_packs)
        if (are_packs && ((uintptr_t)x_at - (uintptr_t)y_at) % 16 == 0)
            return each_pack(reinterpret_cast<const T *>(x_at), reinterpret_cast<const T *>(y_at),
                             turn, use);
    size_t first_term = turn.begin + turn.member;
    size_t left = first_term < turn.end ? (turn.end - first_term + turn.step - 1) / turn.step : 0;
    x_at += (int64_t)first_term * x_step;
    y_at += (int64_t)first_term * y_step;
    x_step *= turn.step;
    y_step *= turn.step;
    MOSTLY_ONCE
    for (; left > 0; x_at += flight * x_step, y_at += flight * y_step) {
        unsigned count = left < flight ? unsigned(left) : flight;
        T x[flight], y[flight];
        for (unsigned j = 0; j < flight; j++) {
            x[j] = y[j] = T{};
            if (j < count) {
                x[j] = *reinterpret_cast<const T *>(x_at + j * x_step);
                y[j] = has_factors ? *reinterpret_cast<const T *>(y_at + j * y_step) : x[j];
            }
        }
        left -= count;
        if constexpr (by_packs)
            use(x, y);
        else
            for (unsigned j = 0; j < count; j++)
                use(x[j], y[j]);
    }
}

/* Calls use(low, high) for a thread's integers of a group, which have 64 bits: each integer is the
 * sum of two float64 numbers. */
template <typename Use>
__device__ __forceinline__ void each_wide(const gr_layout &of, const Place &first, const Turn &turn,
                                          Use use)
{
    MOSTLY_ONCE
    for (size_t i = turn.begin + turn.member; i < turn.end; i += turn.step) {
        Place at(of.dim + of.kept, of.reduced, i);
        if (of.mask && !of.mask[first.mask + at.mask])
            continue;
        const void *address = static_cast<const char *>(of.base) + first.in + at.in;
        auto bits = element_at<unsigned long long>(address, 0, of.load);
        bool is_negative = of.load == GR_ELEMENTS_I64 && bits >> 63;
        unsigned long long size = is_negative ? 0 - bits : bits;
        double sign = of.term != GR_TERM_MAGNITUDE && is_negative ? -1 : 1;
        use(sign * double(unsigned(size)), sign * 0x1p32 * double(unsigned(size >> 32)));
    }
}

/* Adds terms of elements x and y. */
template <typename Acc> struct AddTerms {
    Acc &sum;
    gr_term term;

    template <typename T> __device__ __forceinline__ void operator()(T x, T y) const
    {
        if constexpr (!is_moments<Acc>) {
            add_to(sum, term == GR_TERM_MAGNITUDE ? fabs(double(x)) : double(x));
        } else if (term < GR_TERM_PRODUCT) {
            add_to(sum, x);
        } else {
            add_product(sum.products, x, y);
            if (term == GR_TERM_WEIGHTED)
                add_to(sum.x, y);
        }
    }

    template <typename T, unsigned count>
    __device__ __forceinline__ void operator()(const T (&x)[count], const T (&y)[count]) const
    {
        if constexpr (!is_moments<Acc>) {
            for (unsigned k = 0; k < count; k++)
                (*this)(x[k], y[k]);
        } else if (term < GR_TERM_PRODUCT) {
            add_pieces_to<T>(sum, x);
        } else {
            Exponents of_y = exponents_of(y);
            add_products(sum.products, x, y, of_y);
            if (term == GR_TERM_WEIGHTED)
                add_few(sum.x, y, of_y.top);
        }
    }
};

/* Adds a wide integer, and, if the sum has products, its square. */
template <typename Acc> __device__ __forceinline__ void add_wide(Acc &sum, double low, double high)
{
    if constexpr (is_moments<Acc>) {
        add_wide(sum.x, low, high);
        add_product(sum.products, low, low);
        add_product(sum.products, 2 * low, high);
        add_product(sum.products, high, high);
    } else {
        add_to(sum, low);
        add_to(sum, high);
    }
}

/* Calls use(x, y) for the factors of one part of products of complex numbers. */
template <typename Use>
__device__ __forceinline__ void each_complex(const gr_layout &of, const Place &first,
                                             const Turn &turn, Use use)
{
    const unsigned char *factors = of.mask + first.mask;
    int64_t imaginary = (uintptr_t)factors & 1;
    bool subtracts = (of.term == GR_TERM_CONJUGATED) == (imaginary != 0);
    MOSTLY_ONCE
    for (size_t i = turn.begin + turn.member; i < turn.end; i += turn.step) {
        Place at(of.dim + of.kept, of.reduced - 1, i / 2);
        int64_t part = i % 2;
        double x = element_at<double>(static_cast<const char *>(of.base) + first.in + at.in, part,
                                      of.load);
        double y = element_at<double>(factors - imaginary + at.mask, part ^ imaginary, of.load);
        use(x, part && subtracts ? -y : y);
    }
}

/* Calls use(x, y) for a thread's elements of a group of floats. `by_packs`: `use` is short enough
 * for each_pack(). */
template <bool by_packs, typename Use>
__device__ __forceinline__ void each_term(const gr_layout &of, const Place &first, const Turn &turn,
                                          Use use)
{
    bool has_factors = of.term >= GR_TERM_PRODUCT;
    if (of.term >= GR_TERM_COMPLEX)
        return each_complex(of, first, turn, use);
    if (of.reduced == 1 && (has_factors || !of.mask))
        switch (of.load) {
        case GR_LOAD_f16: return each_strided<__half, by_packs>(of, first, turn, use);
        case GR_LOAD_bf16: return each_strided<__nv_bfloat16, by_packs>(of, first, turn, use);
        case GR_LOAD_f32: return each_strided<float, by_packs>(of, first, turn, use);
        case GR_LOAD_f64: return each_strided<double, by_packs>(of, first, turn, use);
        default: break;
        }
    MOSTLY_ONCE
    for (size_t i = turn.begin + turn.member; i < turn.end; i += turn.step) {
        Place at(of.dim + of.kept, of.reduced, i);
        double x = of_layout<double>(of, first.in + at.in), y = x;
        if (has_factors)
            y = element_at<double>(of.mask + first.mask + at.mask, 0, of.load);
        else if (of.mask && !of.mask[first.mask + at.mask])
            continue;
        use(x, y);
    }
}

/* Adds a thread's elements of a group, or what its terms are. */
template <typename Acc>
__device__ __forceinline__ void add_elements(Acc &sum, const gr_layout &of, const Place &first,
                                             const Turn &turn)
{
    if constexpr (is_proven<Acc>) {
        if (gr_is_wide_integer(of.load))
            each_wide(of, first, turn, [&](double a, double b) { add_wide(sum, a, b); });
        else
            each_term<true>(of, first, turn, AddTerms<Acc>{sum, of.term});
    } else {
        for (size_t i = turn.begin + turn.member; i < turn.end; i += turn.step) {
            Place at(of.dim + of.kept, of.reduced, i);
            if (!of.mask || of.mask[first.mask + at.mask])
                sum += element_at<Acc>(static_cast<const char *>(of.base) + first.in + at.in, 0,
                                       of.load);
        }
    }
}
