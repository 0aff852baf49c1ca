/* What the files of this folder share: the job, and blocks of elements. */
#pragma once

#include "exact/axis_exact.h"
#include "exact/proven_kernels.h"
#include "segments/segments.h"
#include "threads/interrupts.h"

enum {
    GR_SEGMENT_BLOCK = 512, /* numbers that are read and added at a time */
    GR_MOST_SAMPLES = 512,  /* of elements, which choose a window */
    GR_FIELDS = 2048        /* of exponents */
};

/* The representation of sums while elements are added. A cell holds the sum of one column of a
 * segment. */
typedef enum {
    GR_CELL_WORD,   /* uint64: a sum of integers modulo 2^64 */
    GR_CELL_SHORT,  /* a 64-bit integer, in units of a power of two that all sums share */
    GR_CELL_PAIR,   /* a 128-bit integer of the same kind */
    GR_CELL_LEVELS, /* integers in units of several powers of two, also for squares */
    GR_CELL_PROVEN, /* float64 numbers that prove their own rounding: exact/proven.h */
    GR_CELL_EXACT   /* accumulators: exact/exact.h */
} gr_cell_kind;

/* Short cells and pairs take numbers whose exponent field lies in [low, low + most]. They count
 * 2^(low + spare - 1075): `spare` low bits of a number's significand are zero in this type. */
typedef struct {
    int low, most, spare;
} gr_pair_window;

/* A number that does not fit the window, and the cell that it belongs to. */
typedef struct {
    size_t cell;
    double x;
} gr_outlier;

/* Exponent fields. */
typedef struct {
    int least, most;
} gr_field_range;

typedef struct {
    gr_outlier *list;
    size_t count, room;
} gr_outliers;

typedef struct {
    const gr_segments *request;
    const gr_interrupts *watch;
    size_t columns;   /* numbers per row: elements, or twice that for complex ones */
    bool touching;    /* all sums are adjacent, in the order of the cells */
    bool adds_floats; /* the elements are floats */
    gr_cell_kind kind;
    bool in_order;         /* the rows of each segment follow those of the one before */
    gr_pair_window window; /* for pairs, or short cells */
    gr_pair_window narrow; /* for short cells; a negative `most` means none */
    gr_cell_levels levels; /* for levels, ... */
    int unit[2];           /* ... the last unit of sums, and that of squares */
    size_t cell_bytes;

    /* Unproven sums are added up again, exactly. Their segments are numbered; the other segments
     * have the number SIZE_MAX. NULL: all segments are added up. */
    unsigned char *unproven; /* per segment */
    size_t *number, *segment_of;
    size_t all_segments; /* all segments, or only the numbered ones */

    /* The segments of this pass. An extra segment after them takes the elements of all others. */
    size_t first_segment, segments;
    unsigned char *cells; /* of all copies, one after another */
    double *planes;       /* unrounded sums of a batch, for results */
    size_t batch;         /* its first cell */
    size_t copy_bytes;
    int copies, threads;
    gr_outliers *outliers; /* one list per copy; in the end the first has all, sorted */
    size_t most_outliers;  /* of a list */

    size_t chunk, next_row; /* rows that a task takes at a time; the first row not yet taken */
    size_t bad_row;         /* SIZE_MAX: none */
    bool failed;            /* no memory */
    bool too_wide;          /* too many outliers */
} gr_host_segments;

/* Rows, or a part of one row, ready to be added. It is allocated, as the stacks of some threads are
 * too small for it. */
typedef struct {
    size_t rows, first_column, columns;
    const int64_t *ids;
    const void *numbers; /* rows * columns float64 numbers, or integers as uint64 */
    double number_buffer[GR_SEGMENT_BLOCK];
    int64_t id_buffer[GR_SEGMENT_BLOCK];
    unsigned char raw[GR_SEGMENT_BLOCK * 16];
} gr_segment_block;

/* Reads the numbers of columns `column` to column + block->columns - 1 of rows from `row` on.
 * Floats become float64 numbers; block->rows * block->columns <= GR_SEGMENT_BLOCK. */
void gr_read_numbers(const gr_host_segments *job, gr_segment_block *block, size_t row);

/* Reads the ids of block->rows rows from `row` on. With offsets, `at` is the segment of an earlier
 * row on entry, and that of the last row on return. */
void gr_read_ids(const gr_host_segments *job, gr_segment_block *block, size_t row, size_t *at);

/* The first row of the block whose id is out of range; block->rows if there is none. */
size_t gr_first_bad(const gr_host_segments *job, const gr_segment_block *block);

/* Whether an id of the block is less than the one before. */
bool gr_ids_fall(const gr_segment_block *block);

/* Whether the squares of the elements are added up, too. */
static inline bool gr_has_squares(const gr_host_segments *job)
{
    const gr_segment_finish *finish = job->request->sums.finish;
    return finish && finish->how.second_count > 0;
}

/* The first cell of the block's row i. An id may be any number, as other threads may write ids. */
static inline size_t gr_cell_of(const gr_host_segments *job, const gr_segment_block *block,
                                size_t i)
{
    size_t place = (size_t)block->ids[i];
    if (job->number)
        place = place < job->request->sums.segments ? job->number[place] : SIZE_MAX;
    place -= job->first_segment;
    place = place < job->segments ? place : job->segments;
    return place * job->columns + block->first_column;
}

/* Adds rows first to end - 1 to a copy of the cells, block by block. */
void gr_add_rows(gr_host_segments *job, gr_segment_block *block, size_t first, size_t end,
                 int copy);

/* Moves the outliers of all copies to the first list and sorts them by cell. */
void gr_join_outliers(gr_host_segments *job);

/* Adds up the copies of cells first to first + n - 1 and stores their sums. */
void gr_finish_cells(const gr_host_segments *job, size_t first, size_t n);

/* Sets job->in_order: whether segments come as offsets or as sorted ids. If they do, also sets
 * job->bad_row. */
void gr_look_for_order(gr_host_segments *job);

/* Adds up segments that are in order. Stores all sums. */
void gr_sum_in_order(gr_host_segments *job);

/* --- kinds of cells ------------------------------------------------------------------------ */

/* Copies samples from the whole array. Returns their number; sets job->failed without memory. */
size_t gr_take_samples(gr_host_segments *job, double samples[2 * GR_MOST_SAMPLES]);

/* Counts exponent fields of normal numbers. Returns how many there are and sets `range` to the
 * least and the greatest field, or to some range if there are none. */
size_t gr_count_fields(const double *samples, size_t n, unsigned counts[GR_FIELDS],
                       gr_field_range *range);

/* Sets `low` to the first of `most` + 1 fields that hold most samples. Returns false if they do not
 * hold nearly all of them. */
bool gr_place_window(const unsigned counts[GR_FIELDS], size_t samples, gr_field_range range,
                     int most, int *low);

/* Sets job->window, for pairs, and job->narrow; or job->levels. Each returns false without memory,
 * or if most elements do not fit. */
bool gr_choose_window(gr_host_segments *job);
bool gr_choose_levels(gr_host_segments *job);

/* Each adds a block to a copy's cells. gr_add_pairs(), also for short cells, and gr_add_levels()
 * return false if there are too many outliers or too little memory. */
void gr_add_words(const gr_host_segments *job, const gr_segment_block *block, uint64_t *cells);
bool gr_add_pairs(gr_host_segments *job, const gr_segment_block *block, unsigned char *cells,
                  gr_outliers *outliers);
bool gr_add_levels(gr_host_segments *job, const gr_segment_block *block, int64_t *cells,
                   gr_outliers *outliers);
void gr_add_proven(const gr_host_segments *job, const gr_segment_block *block,
                   unsigned char *cells);
void gr_add_exactly(const gr_host_segments *job, const gr_segment_block *block, gr_exact *cells);

/* As gr_finish_cells(). gr_finish_proven() marks segments with unproven sums. */
void gr_finish_words(const gr_host_segments *job, size_t first, size_t n);
void gr_finish_pairs(const gr_host_segments *job, size_t first, size_t n);
void gr_finish_levels(const gr_host_segments *job, size_t first, size_t n);
void gr_finish_proven(const gr_host_segments *job, size_t first, size_t n);
void gr_finish_exactly(const gr_host_segments *job, size_t first, size_t n);

/* The first outlier of this cell or of a later one. */
size_t gr_first_outlier(const gr_outliers *outliers, size_t cell);

/* Appends an outlier. Returns false if there are too many, or there is too little memory. */
bool gr_note_outlier(const gr_host_segments *job, gr_outliers *outliers, gr_outlier outlier);

/* Adds the initial number to an accumulator and stores it as the sum of a cell: rounded, unrounded
 * or as words. */
void gr_store_accumulator(const gr_host_segments *job, gr_exact *sum, size_t cell);

/* Stores the unrounded sum of a cell, or that of squares, in the planes of the batch. */
static inline void gr_store_numbers(const gr_host_segments *job, gr_unrounded sum, size_t cell,
                                    bool of_squares)
{
    enum { PLANE = GR_FINISH_BATCH };
    size_t parts = (size_t)job->request->sums.finish->how.parts, at = cell - job->batch;
    size_t plane = of_squares * parts + (at & (parts - 1)); /* without a slow division */
    double *to = job->planes + plane * 4 * PLANE + (at >> (parts - 1));
    to[0] = sum.high;
    to[PLANE] = sum.low;
    to[2 * PLANE] = sum.tail;
    to[3 * PLANE] = sum.error;
}

/* Computes the results of n groups from such planes, and stores them from result `first` on. */
void gr_store_results(const gr_host_segments *job, const double *planes, size_t stride,
                      size_t first, size_t n);

/* Stores the bits of a cell's sum. If the result is complex and the elements are real, also stores
 * the imaginary part. */
void gr_store_sum(const gr_host_segments *job, size_t cell, uint64_t bits);

/* The initial number's part of this cell: 0 real, 1 imaginary. */
static inline int gr_part_of_cell(const gr_host_segments *job, size_t cell)
{
    return (int)(cell & (size_t)(job->request->values.parts - 1));
}
