/* Adds numbers and their squares to cells of levels, and reads the cells (proven_kernels.h); a part
 * of proven_text.h. */

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

#if VECTOR_BYTES == 64
#define TRANSPOSE_ALL(words) TRANSPOSE(words, 1) TRANSPOSE(words, 2) TRANSPOSE(words, 4)
#elif VECTOR_BYTES == 32
#define TRANSPOSE_ALL(words) TRANSPOSE(words, 1) TRANSPOSE(words, 2)
#else
#define TRANSPOSE_ALL(words) TRANSPOSE(words, 1)
#endif

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
    TRANSPOSE_ALL(words)
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

/* Stores what `count` levels count, as the four numbers of a plane. A level's unit is 2^spacing of
 * the next level's. Each level, and the one that takes the first level's carry, becomes a number
 * of at most half the unit before it. Added from the last to the first, these numbers leave rests
 * that decrease, too. */
INLINE void store_count(lanes64 *level, int count, int spacing, double unit, double *planes,
                        size_t stride)
{
    const lanes64 half = (lanes64){0} + ((int64_t)1 << (spacing - 1));
    const lanes64 magic = (lanes64)(0x1.8p52 + (doubles){0});
    const double power = gr_power_of_two(spacing);
    doubles value[GR_LEVELS], rest[GR_LEVELS], tail, bound = {0};
    lanes64 carry = {0};
#pragma GCC unroll 8
    for (int k = count; k >= 0; k--, unit *= power) {
        lanes64 units = carry;
        if (k > 0) {
            units += level[k - 1];
            carry = (units + half) >> spacing;
            units -= carry << spacing;
        }
        value[k] = ((doubles)(units + magic) - 0x1.8p52) * unit;
    }
    doubles sum = value[count];
#pragma GCC unroll 8
    for (int k = count - 1; k >= 0; k--) {
        doubles above = value[k] + sum;
        rest[k] = sum - (above - value[k]); /* exactly: value[k] is 0 or larger than `sum` */
        sum = above;
    }
    tail = two_sum(&rest[0], rest[1]);
#pragma GCC unroll 8
    for (int k = 2; k < count; k++)
        bound += magnitude(two_sum(&tail, two_sum(&rest[0], rest[k])));
    store_lanes(&(proven_lanes){sum, rest[0], tail, bound}, planes, stride);
}

static void cell_sums(const gr_cell_levels *of, const gr_cell_copies *from, size_t n, double *sums,
                      double *squares)
{
    for (size_t i = 0; i < n; i += WIDTH) {
        lanes64 words[GR_LEVELS];
#pragma GCC unroll 8
        for (size_t lane = 0; lane < WIDTH; lane++) {
            const int64_t *at = from->cells + (i + lane < n ? i + lane : i) * from->step;
            for (size_t k = 0; k < GR_LEVELS; k += WIDTH)
                memcpy(&words[k + lane], at + k, sizeof *words);
            for (int copy = 1; copy < from->copies; copy++) {
                at += from->apart;
                for (size_t k = 0; k < GR_LEVELS; k += WIDTH) {
                    lanes64 more;
                    memcpy(&more, at + k, sizeof more);
                    words[k + lane] += more;
                }
            }
        }
        TRANSPOSE_ALL(words)
        store_count(words, GR_LEVELS_OF_X, of->spacing, of->unit[0], sums + i, GR_FINISH_BATCH);
        store_count(words + GR_LEVELS_OF_X, GR_LEVELS - GR_LEVELS_OF_X, of->spacing, of->unit[1],
                    squares + i, GR_FINISH_BATCH);
    }
}
