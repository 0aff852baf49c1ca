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

/* Adds up a tile of columns, or a row, of which each GROUP elements are a row of columns. `of_x` is
 * the number of the first levels, those of x, or 0. */
INLINE void add_levels_of(load_pair *load, size_t size, const gr_levels *of, int of_x,
                          const unsigned char *in, size_t n, size_t columns, double *out)
{
    enum { LEVELS = GR_LEVELS, MOST = 400 /* of an exponent */ };
    int count = of_x + LEVELS - GR_LEVELS_OF_X;
    doubles most = {0}, start[LEVELS], x[2];
    size_t rows = of->in_rows ? (n - 1) / GROUP + 1 : n;
    ptrdiff_t step = of->in_rows ? GROUP * (ptrdiff_t)size : of->row_step;
    for (size_t row = 0; row < rows; row++)
        for (size_t first = 0; first < columns; first += GROUP) {
            load_columns(load, size, in + (ptrdiff_t)row * step + first * size,
                         of->in_rows ? n - row * GROUP : columns - first, x);
            for (int i = 0; i < 2; i++) {
                doubles new = magnitude(x[i]);
                most = choose((lanes64)(new > most) & (lanes64)(new < __builtin_inf()), new, most);
            }
        }
    int exponent = -1022; /* 2^exponent is above all finite magnitudes */
    for (int i = 0; i < WIDTH; i++) {
        int one = (int)(((lanes64)most)[i] >> 52) - 1022;
        exponent = one > exponent ? one : exponent;
    }
    bool fits = exponent >= -MOST && exponent <= MOST; /* smaller x are below the last level */
    start_levels(start, of_x, fits ? exponent : 0);
    start_levels(start + of_x, LEVELS - GR_LEVELS_OF_X, fits ? 2 * exponent : 0);
    lanes64 unfit = (fits ? 0 : INT64_MAX) - (lanes64){0};
    doubles none = __builtin_nan("") - (doubles){0};
    for (size_t first = 0; first < columns; first += GROUP, in += GROUP * size, out += GROUP) {
        doubles level[2][LEVELS];
        lanes64 lost[2] = {unfit, unfit};
        for (int i = 0; i < 2; i++)
            memcpy(level[i], start, sizeof start);
        for (size_t row = 0; row < rows; row++) {
            load_columns(load, size, in + (ptrdiff_t)row * step,
                         of->in_rows ? n - row * GROUP : columns - first, x);
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                doubles square = x[i] * x[i];
                if (of_x > 0)
                    add_to_levels(level[i], of_x, x[i], &lost[i]);
                add_to_levels(level[i] + of_x, count - of_x - (size < 8), square, &lost[i]);
                if (size == sizeof(double))
                    add_to_levels(level[i] + of_x + 1, count - of_x - 1,
                                  rest_of_product(x[i], x[i], square), &lost[i]);
            }
        }
        for (int k = 0; k < count; k++) {
            doubles sums[2];
            for (int i = 0; i < 2; i++)
                sums[i] = choose(lost[i] << 1 == 0, level[i][k] - start[k], none);
            double *to = out + (size_t)k * of->groups;
            size_t left = columns - first < GROUP ? columns - first : GROUP;
            if (of->in_rows) { /* the sum of the lanes is exact, too */
                sums[0] += sums[1];
                *to = 0;
                for (int i = 0; i < WIDTH; i++)
                    *to += sums[0][i];
            } else {
                memcpy(to, sums, left * sizeof *to);
            }
        }
    }
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
