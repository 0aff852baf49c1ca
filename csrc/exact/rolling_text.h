/* Windows that move side by side, one in each lane; a part of proven_text.h. */

typedef struct {
    proven_lanes sum;
    term_lanes squares;
    doubles count;
} rolling_lanes;

/* Adds x and its square if `one` is 1, and takes them away if it is -1. A nan is left out. */
INLINE void move_lanes(bool has_squares, rolling_lanes *to, doubles x, double one)
{
    lanes64 is_number = (lanes64)(x == x);
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
    memcpy(&sums, lanes, sizeof sums);
    for (size_t i = 0; i < steps; i++) {
        ptrdiff_t at = (ptrdiff_t)i * of->step;
        if (of->enters)
            move_lanes(has_squares, &sums, load_apart(of->enters + at, of->apart), 1);
        if (planes) {
            proven_lanes sum = sums.sum;
            sum.bound *= of->factor;
            store_lanes(&sum, planes + i * WIDTH, of->stride);
            memcpy(counts + i * WIDTH, &sums.count, sizeof sums.count);
        }
        if (planes && has_squares) {
            term_lanes squares = sums.squares;
            end_terms(&squares);
            squares.sum.bound *= of->factor;
            store_lanes(&squares.sum, planes + 4 * of->stride + i * WIDTH, of->stride);
        }
        if (of->leaves)
            move_lanes(has_squares, &sums, load_apart(of->leaves + at, of->apart), -1);
    }
    memcpy(lanes, &sums, sizeof sums);
}

static void roll(const gr_roll *of, size_t steps, double *lanes, double *planes, double *counts)
{
    if (of->has_squares)
        roll_all(true, of, steps, lanes, planes, counts);
    else
        roll_all(false, of, steps, lanes, planes, counts);
}
