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
    enum { LOG = 12 }; /* a level takes 2^LOG numbers: of 16 columns of a piece, two each */
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

INLINE void add_levels_of(load_pair *load, size_t size, const gr_levels *of,
                          const unsigned char *in, size_t rows, size_t columns, double *out)
{
    enum { LEVELS = GR_LEVELS, OF_X = GR_LEVELS_OF_X, MOST = 400 /* of an exponent */ };
    doubles most = {0}, start[LEVELS], x[2];
    for (size_t row = 0; row < rows; row++)
        for (size_t first = 0; first < columns; first += GROUP) {
            load_columns(load, size, in + (ptrdiff_t)row * of->row_step + first * size,
                         columns - first, x);
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
    start_levels(start, OF_X, fits ? exponent : 0);
    start_levels(start + OF_X, LEVELS - OF_X, fits ? 2 * exponent : 0);
    for (size_t first = 0; first < columns; first += GROUP, in += GROUP * size, out += GROUP) {
        doubles level[2][LEVELS];
        lanes64 lost[2] = {{0}, {0}};
        for (int i = 0; i < 2; i++)
            memcpy(level[i], start, sizeof start);
        for (size_t row = 0; row < rows; row++) {
            load_columns(load, size, in + (ptrdiff_t)row * of->row_step, columns - first, x);
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                doubles square = x[i] * x[i];
                add_to_levels(level[i], OF_X, x[i], &lost[i]);
                add_to_levels(level[i] + OF_X, LEVELS - OF_X - (size < 8), square, &lost[i]);
                if (size == sizeof(double))
                    add_to_levels(level[i] + OF_X + 1, LEVELS - OF_X - 1,
                                  rest_of_product(x[i], x[i], square), &lost[i]);
            }
        }
        for (int k = 0; k < LEVELS; k++) {
            double sums[GROUP];
            for (int i = 0; i < GROUP; i++)
                sums[i] = fits && lost[i / WIDTH][i % WIDTH] << 1 == 0
                              ? level[i / WIDTH][k][i % WIDTH] - start[k][0]
                              : __builtin_nan("");
            size_t left = columns - first < GROUP ? columns - first : GROUP;
            memcpy(out + (size_t)k * of->columns, sums, left * sizeof *sums);
        }
    }
}

static void add_levels(const gr_levels *of, size_t task)
{
    size_t tiles = (of->columns - 1) / GR_LEVEL_COLUMNS + 1, tile = task % tiles;
    size_t pieces = (of->rows - 1) / GR_LEVEL_ROWS + 1, piece = task / tiles % pieces;
    size_t columns = of->columns - tile * GR_LEVEL_COLUMNS, rows = of->rows - piece * GR_LEVEL_ROWS;
    bool is_f32 = of->load == GR_LOAD_f32;
    const unsigned char *in = of->in + (ptrdiff_t)(task / tiles / pieces) * of->step +
                              (ptrdiff_t)(piece * GR_LEVEL_ROWS) * of->row_step +
                              tile * GR_LEVEL_COLUMNS * (is_f32 ? 4 : 8);
    double *out = of->out + task / tiles * GR_LEVELS * of->columns + tile * GR_LEVEL_COLUMNS;
    columns = columns < GR_LEVEL_COLUMNS ? columns : GR_LEVEL_COLUMNS;
    rows = rows < GR_LEVEL_ROWS ? rows : GR_LEVEL_ROWS;
    if (is_f32)
        add_levels_of(load_f32, 4, of, in, rows, columns, out);
    else
        add_levels_of(load_f64, 8, of, in, rows, columns, out);
}
