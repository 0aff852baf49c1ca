/* Exact sums in levels (proven_kernels.h); a part of proven_text.h.
 *
 * A level is a float64 number that starts at 1.5 2^e and stays in its binade. Adding to it leaves a
 * rest of at most half a unit in its last place, exactly, for the next level. The last level must
 * leave no rest. */
INLINE void add_to_levels(doubles *level, int count, doubles x, lanes64 *lost)
{
#pragma GCC unroll 5
    for (int k = 0; k < count; k++) {
        doubles before = level[k];
        level[k] += x;
        x -= minus(level[k], before);
    }
    *lost |= (lanes64)x;
}

/* Starts levels for numbers below 2^exponent, and for twice as many rests. */
INLINE void start_levels(doubles *level, int count, int exponent)
{
    enum { LOG = 12 }; /* a level takes 2^LOG numbers: two of each element of a row's piece */
    for (int k = 0, e = exponent + LOG + 1; k < count; k++, e += LOG - 51)
        level[k] = 1.5 * gr_power_of_two(e) - (doubles){0};
}

/* Loads a group of columns, and zeros after the last one. */
INLINE void load_columns(load_pair *load, size_t size, const unsigned char *in, size_t columns,
                         doubles x[2])
{
    unsigned char rest[GROUP * 8];
    if (columns < GROUP) {
        memset(rest, 0, sizeof rest);
        in = memcpy(rest, in, columns * size);
    }
    load(in, x);
}

/* Adds x and its square. The first `of_x` levels take x, and the next ones its square. If `of_x` is
 * 0, only the square is added, and squares without an exact rest are marked as lost. */
INLINE void add_with_square(doubles x, size_t size, int of_x, doubles *level, lanes64 *lost)
{
    enum { OF_SQUARES = GR_LEVELS - GR_LEVELS_OF_X };
    doubles square = x * x;
    if (of_x > 0)
        add_to_levels(level, of_x, x, lost);
    else if (size == sizeof(double))
        *lost |= (lanes64)(magnitude(x) < 0x1p-480) & (lanes64)(x != 0);
    add_to_levels(level + of_x, OF_SQUARES - (size < 8), square, lost);
    if (size == sizeof(double))
        add_to_levels(level + of_x + 1, OF_SQUARES - 1, rest_of_product(x, x, square), lost);
}

INLINE doubles larger_finite(doubles x, doubles most)
{
    x = magnitude(x);
    return choose((lanes64)(x > most) & (lanes64)(x < __builtin_inf()), x, most);
}

/* 2^exponent is above all lanes. The exponent is at least `least`. */
INLINE int exponent_above(doubles most, int least)
{
    for (int i = 0; i < WIDTH; i++) {
        int one = (int)(((lanes64)most)[i] >> 52) - 1022;
        least = one > least ? one : least;
    }
    return least;
}

/* Stores differences from the start, or their exact sum. The results are nan where `lost`. */
INLINE void store_levels(const doubles level[2], const lanes64 lost[2], doubles start, bool as_one,
                         size_t columns, double *out)
{
    doubles sums[2];
    for (int i = 0; i < 2; i++)
        sums[i] = choose(lost[i] << 1 == 0, level[i] - start, __builtin_nan("") - start);
    if (!as_one) {
        memcpy(out, sums, (columns < GROUP ? columns : GROUP) * sizeof *out);
        return;
    }
    sums[0] += sums[1];
    *out = 0;
    for (int i = 0; i < WIDTH; i++)
        *out += sums[0][i];
}

/* Adds up a tile of columns, or a row, of which each GROUP elements are a row of columns. The
 * levels are for numbers up to 2^MARGIN times as large as the numbers of the first row. If there
 * are larger numbers, all numbers are added again. */
INLINE void add_levels_of(load_pair *load, size_t size, const gr_levels *of, int of_x,
                          const unsigned char *in, size_t n, size_t columns, double *out)
{
    enum { LEVELS = GR_LEVELS, GROUPS = GR_LEVEL_GROUPS / GROUP, MOST = 400, MARGIN = 4 };
    const int count = of_x + LEVELS - GR_LEVELS_OF_X;
    size_t rows = of->in_rows ? (n - 1) / GROUP + 1 : n, together = of->in_rows ? rows : TOGETHER;
    ptrdiff_t step = of->in_rows ? GROUP * (ptrdiff_t)size : of->row_step;
    ptrdiff_t ahead = of->in_rows && n == of->n ? of->row_step : TOGETHER * step;
    doubles level[GROUPS][LEVELS][2], start[LEVELS], most = {0}, x[2];
    lanes64 lost[GROUPS][2];
    for (size_t first = 0; first < columns; first += GROUP) {
        load_columns(load, size, in + first * size, of->in_rows ? n : columns - first, x);
        most = larger_finite(x[1], larger_finite(x[0], most));
    }
    int exponent, above = exponent_above(most, -MOST) + MARGIN;
    do {
        exponent = above;
        bool fits = exponent <= MOST; /* smaller x than 2^-MOST are below the last level */
        start_levels(start, of_x, fits ? exponent : 0);
        start_levels(start + of_x, LEVELS - GR_LEVELS_OF_X, fits ? 2 * exponent : 0);
        for (size_t row = 0; row < rows; row += together)
            for (size_t first = 0; first < columns; first += GROUP) {
                doubles sums[2][LEVELS];
                lanes64 marks[2] = {(fits ? 0 : 1) - (lanes64){0}, (fits ? 0 : 1) - (lanes64){0}};
                for (int i = 0; i < 2; i++)
#pragma GCC unroll 8
                    for (int k = 0; k < count; k++)
                        sums[i][k] = row ? level[first / GROUP][k][i] : start[k];
                if (row)
                    memcpy(marks, lost[first / GROUP], sizeof marks);
                for (size_t r = row; r < rows && r < row + together; r++) {
                    const unsigned char *at = in + (ptrdiff_t)r * step + first * size;
                    load_columns(load, size, at, of->in_rows ? n - r * GROUP : columns - first, x);
                    for (size_t i = 0; i < GROUP * size; i += 64)
                        __builtin_prefetch((const void *)((uintptr_t)at + i + (uintptr_t)ahead), 0,
                                           SECOND_LEVEL);
#pragma GCC unroll 2
                    for (int i = 0; i < 2; i++) {
                        most = larger_finite(x[i], most);
                        add_with_square(x[i], size, of_x, sums[i], &marks[i]);
                    }
                }
                for (int i = 0; i < 2; i++)
#pragma GCC unroll 8
                    for (int k = 0; k < count; k++)
                        level[first / GROUP][k][i] = sums[i][k];
                memcpy(lost[first / GROUP], marks, sizeof marks);
            }
        above = exponent_above(most, -MOST);
    } while (above > exponent);
    for (size_t first = 0; first < columns; first += GROUP)
        for (int k = 0; k < count; k++)
            store_levels(level[first / GROUP][k], lost[first / GROUP], start[k], of->in_rows,
                         columns - first, out + (size_t)k * of->groups + first);
}

INLINE void add_tile(load_pair *load, size_t size, const gr_levels *of, int of_x, size_t task)
{
    size_t tiles = (of->groups - 1) / GR_LEVEL_GROUPS + 1, piece = gr_level_piece(of->in_rows);
    size_t group = task % tiles * GR_LEVEL_GROUPS, i = task / tiles * piece;
    size_t groups = of->groups - group, n = of->n - i < piece ? of->n - i : piece;
    int count = of_x + GR_LEVELS - GR_LEVELS_OF_X;
    double *out = of->out + task / tiles * (size_t)count * of->groups + group;
    groups = groups < GR_LEVEL_GROUPS ? groups : GR_LEVEL_GROUPS;
    const unsigned char *in = of->in + (ptrdiff_t)(of->in_rows ? group : i) * of->row_step +
                              (of->in_rows ? i : group) * size;
    for (size_t k = 0, some = of->in_rows ? 1 : groups; k < groups; k += some, in += of->row_step)
        add_levels_of(load, size, of, of_x, in, n, some, out + k);
}

static void add_levels(const gr_levels *of, size_t task)
{
    enum { OF_X = GR_LEVELS_OF_X };
    if (of->load == GR_LOAD_f32)
        (of->has_x ? add_tile(load_f32, 4, of, OF_X, task) : add_tile(load_f32, 4, of, 0, task));
    else
        (of->has_x ? add_tile(load_f64, 8, of, OF_X, task) : add_tile(load_f64, 8, of, 0, task));
}
