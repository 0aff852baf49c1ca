/* Windows that move side by side, one in each lane; a part of proven_text.h. */

typedef struct {
    proven_lanes sum;
    term_lanes squares;
} rolling_lanes;

/* Adds x and its square if y is x, and takes them away if y is -x. */
INLINE void move_lanes(bool has_squares, rolling_lanes *to, doubles x, doubles y)
{
    doubles square = x * y;
    add_lanes(&to->sum, y);
    if (!has_squares)
        return;
    add_lanes(&to->squares.sum, square);
    add_rest(&to->squares.sum, rest_of_product(x, y, square));
    note_small(&to->squares.small, x, y, square);
}

INLINE doubles load_apart(const double *from, size_t apart)
{
    doubles x;
#pragma GCC unroll 8
    for (size_t l = 0; l < WIDTH; l++)
        x[l] = from[l * apart];
    return x;
}

INLINE void roll_all(bool has_squares, const gr_roll *of, size_t steps, double *lanes,
                     double *planes)
{
    rolling_lanes sums;
    memcpy(&sums, lanes, sizeof sums);
    for (size_t i = 0; i < steps; i++) {
        const double *at = of->in + i;
        doubles x = load_apart(at + of->before, of->apart);
        move_lanes(has_squares, &sums, x, x);
        if (!planes)
            continue;
        proven_lanes sum = sums.sum;
        sum.bound *= of->factor;
        store_lanes(&sum, planes + i * WIDTH, of->stride);
        if (has_squares) {
            term_lanes squares = sums.squares;
            end_terms(&squares);
            squares.sum.bound *= of->factor;
            store_lanes(&squares.sum, planes + 4 * of->stride + i * WIDTH, of->stride);
        }
        x = load_apart(at, of->apart);
        move_lanes(has_squares, &sums, x, -x);
    }
    memcpy(lanes, &sums, sizeof sums);
}

static void roll(const gr_roll *of, size_t steps, double *lanes, double *planes)
{
    if (of->has_squares)
        roll_all(true, of, steps, lanes, planes);
    else
        roll_all(false, of, steps, lanes, planes);
}
