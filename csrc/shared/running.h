/* Running sums, as kernels get them: entry i of a line is the sum of its elements 0 to i. */
#ifndef GPUREDUCE_SHARED_RUNNING_H
#define GPUREDUCE_SHARED_RUNNING_H

#include <stdint.h>

/* A block takes a tile: `items` elements per thread, of `width` lines beside each other. Tiles of a
 * line make groups, and GR_RUNNING_STRETCH tiles make a stretch. */
enum {
    GR_RUNNING_BLOCK = 128,
    GR_RUNNING_STRETCH = 256,
    GR_RUNNING_GROUPS = 16,                     /* groups per stretch, if tiles form groups */
    GR_RUNNING_SUMS = 2 * GR_RUNNING_BLOCK + 32 /* sums in a block's shared memory */
};

/* `outer` times `columns` lines of `n` elements. Steps between elements are in elements, and steps
 * between entries in bytes. Sums begin anew after each `period` elements, or at the elements whose
 * numbers `offset` has, in ascending order. `width` is a power of two up to a warp. Each line has
 * `tiles`, and all lines together are `strips` of `width` lines.
 *
 * Short lines beside each other: a block takes `turns` lines per thread, one after another, as one
 * line of `turns` times `period` elements. The next one is `width` columns, the block's threads,
 * further on. */
typedef struct {
    const void *in;
    uint64_t n, columns, outer;
    int64_t step, column_step, outer_step;
    int64_t to_step, to_column_step, to_outer_step;
    uint64_t period, tiles, strips;
    const int64_t *offset; /* `offsets` numbers, the last of which is `n`; or NULL */
    uint64_t offsets;
    uint64_t walk;                     /* elements that a thread of running_again sums */
    unsigned items, in_tile;           /* the latter: GR_RUNNING_BLOCK times `items` */
    unsigned width, log_width, across; /* the last: strips of the columns of one `outer` */
    unsigned turns;                    /* 0: lines are not short */
    unsigned groups;                   /* GR_RUNNING_GROUPS, or 0 */
    int looks_back;                    /* a tile needs the sum of the tiles before it */
    int has_zero;                      /* a 0 is stored before the first entry */
} gr_running_lines;

/* Scratch memory. Tile t of strip s has number t * strips + s; groups, stretches and walks
 * likewise. Each has `width` sums. All but the digits is 0 at first. */
typedef struct {
    unsigned *ticket;
    void *sums, *group_sums, *up_to; /* of tiles, of groups, and up to the ends of stretches */
    unsigned *any_again, *again;     /* whether any tile has an unproven entry, and which tiles */
    unsigned *again_end;             /* one more than the last such tile of each strip, or 0 */
    int64_t *digits; /* GR_EXACT_WORDS for each sum of a walk, if a line has more than one */
} gr_running_memory;

#endif
