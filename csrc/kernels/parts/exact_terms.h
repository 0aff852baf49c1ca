/* Results for groups of terms, such as means, in integers: kernels/segments/exact_terms.cu. */
#pragma once

#include "exact_levels.h"
#include "matrix.h"

#define FINISH_FUNCTION DEVICE_FUNCTION
#include "exact/finish_integers_text.h"
#include "exact/products.h"

/* The elements of a group, or the products whose size is in one of three ranges. Each
 * product is two numbers, which are scaled by 2^(GR_PRODUCTS_SHIFT (1 - range)): no bit is lost. */
struct Terms {
    enum { ELEMENTS = -1, TINY, USUAL, HUGE_ };
    const gr_layout &of;
    const Place &place;
    int range;

    __device__ __forceinline__ int spare() const
    {
        return 0;
    }

    static __device__ __forceinline__ int exponent_of(double x)
    {
        return int((unsigned)__double2hiint(x) >> 20 & 0x7ff) - 1023;
    }

    template <typename Use>
    __device__ __forceinline__ void each_product(double x, double y, Use use) const
    {
        int size = exponent_of(x) + exponent_of(y);
        bool is_special = exponent_of(x) == 1024 || exponent_of(y) == 1024;
        int found = is_special ? USUAL : size < -960 ? TINY : size > 960 ? HUGE_ : USUAL;
        if (found != range)
            return;
        if (range != USUAL) {
            double scale = range == TINY ? 0x1p544 : 0x1p-544;
            static_assert(GR_PRODUCTS_SHIFT == 1088, "of both factors");
            x = __dmul_rn(x, scale);
            y = __dmul_rn(y, scale);
        }
        double product = __dmul_rn(x, y);
        use(product);
        if (!is_special)
            use(__fma_rn(x, y, -product));
    }

    template <typename Use> __device__ __forceinline__ void each(const Share &part, Use use) const
    {
        bool are_sizes = of.term == GR_TERM_MAGNITUDE;
        Turn turn = {part.first - threadIdx.x, part.end, threadIdx.x, (unsigned)part.step};
        if (gr_is_wide_integer(of.load))
            return each_wide(of, place, turn, [&](double low, double high) {
                if (range == ELEMENTS) {
                    use(low);
                    use(high);
                } else {
                    each_product(low, low, use);
                    each_product(2 * low, high, use);
                    each_product(high, high, use);
                }
            });
        each_term<false>(of, place, turn, [&](auto one, auto other) {
            double x = double(one), y = double(other);
            if (range == ELEMENTS)
                use(are_sizes ? fabs(x) : of.term == GR_TERM_WEIGHTED ? y : x);
            else
                each_product(x, y, use);
        });
    }
};

/* Makes a group's result by a warp or a block from sums in three numbers. Returns true in its first
 * thread if these prove the result: float64 numbers that were float32 have few bits, and results of
 * such numbers are often just between two floats. */
DEVICE_FUNCTION bool is_made_finely(void *to, const gr_sums &out, const Terms &terms,
                                    const Turn &turn)
{
    Moments<gr_proven3> sum = 0;
    bool has_factors = terms.of.term >= GR_TERM_PRODUCT;
    each_term<false>(terms.of, terms.place, turn, [&](auto one, auto other) {
        add_product(sum.products, double(one), double(other));
        add_to(sum.x, double(has_factors ? other : one));
    });
    sum = team_sum(sum, turn.step);
    return turn.member == 0 && store_moments(to, out, sum);
}

/* The same for each result of a block whose bit is set: a warp makes one, and clears its bit. */
__device__ __forceinline__ void make_finely(const gr_sums &out, const gr_layout &of,
                                            const NextTask &next, size_t terms)
{
    unsigned lane = threadIdx.x % 32;
    size_t warps = (size_t)gridDim.x * (blockDim.x / 32);
    MOSTLY_ONCE
    for (size_t k = blockIdx.x + gridDim.x * (threadIdx.x / 32); next.find(k, warps); k += warps) {
        Place place(of.dim, of.kept, k);
        TermRange mine(of, place, terms);
        void *to = static_cast<char *>(out.base) + place.out;
        if (is_made_finely(to, out, {of, place, 0}, {mine.begin, mine.end, lane, 32}))
            atomicAnd(&out.unproven[k / 32], ~(1u << k % 32));
        __syncwarp();
    }
    __syncthreads();
}

/* The first word of imaginary parts: after the words of elements and of products. */
constexpr size_t imaginary_words = (1 + GR_PRODUCTS_PARTS) * GR_LEVELS_WORDS;

/* Adds up a block's share of some terms, and adds the digits of that to the words of the sum. */
__device__ __forceinline__ void add_digits(const Terms &terms, const Share &part,
                                           unsigned long long *word)
{
    constexpr size_t room = (size_t)GR_LEVELS_ROOM * GR_TERMS_THREADS; /* fit into 62 bits */
    bool gives = threadIdx.x % 32 == 0;
    SumDigits digits(word, NULL);
    unsigned flags = 0;
    for (size_t begin = part.first; begin < part.end; begin += room) {
        Share mine = {begin + threadIdx.x, blockDim.x,
                      part.end - begin < room ? part.end : begin + room};
        flags |= each_digit_of(terms, mine, 0, 1, [&](int k, long long total) {
            if (gives)
                digits.give(k, total);
        });
        if (gives)
            digits.leave();
    }
    if (gives && flags)
        atomicOr(&word[SumDigits::FLAGS], (unsigned long long)flags);
}

/* Sets `to` to the sum of the digits in `count` sets of words. Returns their flags. */
DEVICE_FUNCTION unsigned read_digits(gr_finish_room *room, integer *to,
                                     const unsigned long long *word, int count)
{
    unsigned flags = 0;
    to->size = to->low = 0;
    to->negative = false;
    for (int i = 0; i < count; i++, word += GR_LEVELS_WORDS) {
        int shift = count > 1 ? GR_PRODUCTS_SHIFT * (i - 1) : 0;
        integer_of_digits(&room->number, reinterpret_cast<const int64_t *>(word), GR_EXACT_DIGITS,
                          GR_EXACT_UNIT + shift);
        add_integer(room, to, &room->number);
        flags |= (unsigned)word[SumDigits::FLAGS];
    }
    return flags;
}

/* Makes a group's result from all of its words. One thread calls this function. */
DEVICE_FUNCTION void finish_group(void *to, const gr_sums &of, const gr_layout &layout,
                                  gr_finish_room *room, const unsigned long long *word)
{
    gr_made made = of.made;
    if (!take_numbers(&made, of.numbers, to)) {
        store_bits(to, gr_round_flags(GR_EXACT_NAN, gr_format_of(of.type)), of.bytes);
        return;
    }
    gr_term term = layout.term;
    int parts = layout.imaginary ? 2 : 1;
    bool is_ratio = made.kind == GR_FINISH_RATIO, has_two = !is_ratio || term == GR_TERM_WEIGHTED;
    bool products_first = is_ratio && term >= GR_TERM_SQUARE;
    gr_finish_how how = {
        (gr_finish_kind)made.kind, made.root != 0, 1, has_two, parts, made.ddof, of.type};
    const unsigned long long *products = word + GR_LEVELS_WORDS;
    room->n = made.n;
    room->mean = made.mean;
    room->first_flags = read_digits(room, &room->first[0], products_first ? products : word,
                                    products_first ? GR_PRODUCTS_PARTS : 1);
    if (parts == 2)
        room->first_flags |= read_digits(room, &room->first[1], word + imaginary_words, 1);
    if (has_two)
        room->second_flags = read_digits(room, &room->second, products_first ? word : products,
                                         products_first ? 1 : GR_PRODUCTS_PARTS);
    store_bits(to, finish_in_integers(&how, room), of.bytes);
}
