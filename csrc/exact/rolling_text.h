/* Windows that move side by side, one in each lane; a part of proven_text.h. */

typedef struct {
    proven_lanes sum;
    term_lanes squares;
    doubles count;
} rolling_lanes;

/* Adds x and its square if `one` is 1, and takes them away if it is -1. A nan is left out. */
INLINE void move_lanes(bool has_squares, rolling_lanes *to, doubles x, double one, lanes64 takes)
{
    lanes64 is_number = (lanes64)(x == x) | takes;
    x = (doubles)((lanes64)x & is_number);
    doubles y = one * x, square = x * y;
    to->count += (doubles)((lanes64)((doubles){0} + one) & is_number);
    add_lanes(&to->sum, y);
    if (!has_squares)
        return;
    add_lanes(&to->squares.sum, square);
    add_rest(&to->squares.sum, rest_of_product(x, y, square));
    note_small(&to->squares.small, x, y, square);
}

INLINE doubles load_apart(const double *from, ptrdiff_t apart)
{
    doubles x;
    if (apart == 1)
        return load_doubles(from);
#pragma GCC unroll 8
    for (ptrdiff_t l = 0; l < WIDTH; l++)
        x[l] = from[l * apart];
    return x;
}

INLINE void roll_all(bool has_squares, const gr_roll *of, size_t steps, double *lanes,
                     double *planes, double *counts)
{
    rolling_lanes sums;
    const lanes64 takes = (lanes64){0} - (int64_t)of->takes_nan;
    /* Loads each member: compilers keep a struct that is copied as a whole in memory. */
    load_lanes(&sums.sum, lanes, WIDTH);
    load_lanes(&sums.squares.sum, lanes + 4 * WIDTH, WIDTH);
    sums.squares.small = (lanes64)load_doubles(lanes + 8 * WIDTH);
    sums.count = load_doubles(lanes + 9 * WIDTH);
    for (size_t i = 0; i < steps; i++) {
        ptrdiff_t at = (ptrdiff_t)i * of->step;
        if (of->enters)
            move_lanes(has_squares, &sums, load_apart(of->enters + at, of->apart), 1, takes);
        if (planes) {
            proven_lanes sum = sums.sum;
            sum.bound *= of->factor;
            store_lanes(&sum, planes + i * of->width, of->stride);
            if (counts)
                memcpy(counts + i * of->width, &sums.count, sizeof sums.count);
        }
        if (planes && has_squares) {
            term_lanes squares = sums.squares;
            end_terms(&squares);
            squares.sum.bound *= of->factor;
            store_lanes(&squares.sum, planes + 4 * of->stride + i * of->width, of->stride);
        }
        if (of->leaves)
            move_lanes(has_squares, &sums, load_apart(of->leaves + at, of->apart), -1, takes);
    }
    store_lanes(&sums.sum, lanes, WIDTH);
    store_lanes(&sums.squares.sum, lanes + 4 * WIDTH, WIDTH);
    memcpy(lanes + 8 * WIDTH, &sums.squares.small, sizeof sums.squares.small);
    memcpy(lanes + 9 * WIDTH, &sums.count, sizeof sums.count);
}

static void roll(const gr_roll *of, size_t steps, double *lanes, double *planes, double *counts)
{
    if (of->has_squares)
        roll_all(true, of, steps, lanes, planes, counts);
    else
        roll_all(false, of, steps, lanes, planes, counts);
}
