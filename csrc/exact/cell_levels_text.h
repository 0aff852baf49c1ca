/* Adds numbers and their squares to cells of levels (proven_kernels.h); a part of proven_text.h. */

/* Indices of lanes for one step of a transposition, where the lanes of b follow the lanes of a.
 * Lane i of the first result is lane i of a if i has not bit `by`, else lane i - by of b. Lane i of
 * the second result is lane i + by of a if i has not bit `by`, else lane i of b. */
#define FIRST_LANE(i, by) ((i) & (by) ? (i) - (by) + WIDTH : (i))
#define SECOND_LANE(i, by) ((i) & (by) ? (i) + WIDTH : (i) + (by))
#if VECTOR_BYTES == 64
#define LANES(a, b, of, by)                                                                        \
    __builtin_shufflevector(a, b, of(0, by), of(1, by), of(2, by), of(3, by), of(4, by),           \
                            of(5, by), of(6, by), of(7, by))
#elif VECTOR_BYTES == 32
#define LANES(a, b, of, by)                                                                        \
    __builtin_shufflevector(a, b, of(0, by), of(1, by), of(2, by), of(3, by))
#else
#define LANES(a, b, of, by) __builtin_shufflevector(a, b, of(0, by), of(1, by))
#endif

/* One step of the transposition of squares of WIDTH numbers. */
#define TRANSPOSE(words, by)                                                                       \
    _Pragma("GCC unroll 8") for (int k = 0; k < GR_LEVELS; k++) if (!(k & (by)))                   \
    {                                                                                              \
        lanes64 one = (words)[k], other = (words)[k + (by)];                                       \
        (words)[k] = LANES(one, other, FIRST_LANE, by);                                            \
        (words)[k + (by)] = LANES(one, other, SECOND_LANE, by);                                    \
    }

/* Returns how many units of a level are in x, and leaves the remainder in x. */
INLINE lanes64 count_in(double start, doubles *x)
{
    doubles level = start - (doubles){0}, sum = *x + level;
    *x -= sum - level;
    return (lanes64)sum - (lanes64)level;
}

/* Adds the lanes of x. Sets all bits of the lanes that do not fit in the result. */
INLINE lanes64 add_to_cells(const gr_cell_levels *of, doubles x, const size_t *places,
                            int64_t *cells)
{
    doubles lost = two_sum(&x, (doubles){0} - of->pivot), size = magnitude(x);
    lanes64 fits = (lanes64)(size >= of->least) & (lanes64)(size < of->end) & (lanes64)(lost == 0);
    lanes64 words[GR_LEVELS], left_out = ~fits & (lanes64)(size != 0);
    x = (doubles)((lanes64)x & fits);
    doubles square = x * x, more = rest_of_product(x, x, square);
#pragma GCC unroll 8
    for (int k = 0; k < GR_LEVELS; k++) {
        words[k] = count_in(of->start[k], k < GR_LEVELS_OF_X ? &x : &square);
        if (k > GR_LEVELS_OF_X)
            words[k] += count_in(of->start[k], &more);
    }
    TRANSPOSE(words, 1)
#if VECTOR_BYTES > 16
    TRANSPOSE(words, 2)
#endif
#if VECTOR_BYTES > 32
    TRANSPOSE(words, 4)
#endif
#pragma GCC unroll 8
    for (int i = 0; i < WIDTH; i++)
        for (int k = 0; k < GR_LEVELS; k += WIDTH) {
            int64_t *at = cells + places[i] * GR_LEVELS + k;
            lanes64 sum;
            memcpy(&sum, at, sizeof sum);
            sum += words[k + i];
            memcpy(at, &sum, sizeof sum);
        }
    return left_out;
}

static bool add_cells(const gr_cell_levels *of, const double *x, const size_t *places, size_t n,
                      int64_t *cells)
{
    enum { AHEAD = 32 }; /* places whose cells are prefetched */
    lanes64 lost = {0};
    size_t i = 0;
    doubles some = {0};
    for (; i + WIDTH <= n; i += WIDTH) {
        const size_t *ahead = places + (i + AHEAD + WIDTH <= n ? i + AHEAD : i);
#pragma GCC unroll 8
        for (int k = 0; k < WIDTH; k++)
            __builtin_prefetch(cells + ahead[k] * GR_LEVELS, 1);
        memcpy(&some, x + i, sizeof some);
        lost |= add_to_cells(of, some, places + i, cells);
    }
    if (i < n) { /* pivots, which add nothing to a cell, follow the last number */
        size_t last[WIDTH];
        for (size_t k = 0; k < WIDTH; k++) {
            last[k] = places[i + k < n ? i + k : i];
            some[k] = i + k < n ? x[i + k] : of->pivot;
        }
        lost |= add_to_cells(of, some, last, cells);
    }
    int64_t any = 0;
    for (int k = 0; k < WIDTH; k++)
        any |= lost[k];
    return any == 0;
}
