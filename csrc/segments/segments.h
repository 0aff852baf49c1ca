/* Sums by segment, on the CPU: element i of an array is added to the sum number id[i].
 *
 * Sums of floats are correctly rounded: each segment's real-number sum, rounded once. Integers are
 * added modulo 2^64. So the sums depend on neither the order of the elements nor the number of
 * threads. */
#pragma once

#include "exact/finish.h"
#include "shared/dtypes.h"

#include <stdbool.h>

/* The elements: rows of columns. Row i goes to segment id[i], column by column. */
typedef struct {
    const unsigned char *data;
    ptrdiff_t row_step, column_step; /* bytes */
    size_t rows, columns;
    gr_load load;
    int parts;      /* 2: complex elements, whose parts are added up separately */
    bool is_signed; /* of integers */
    bool swapped;   /* the bytes of each element, or part, are in reverse order */
} gr_segment_values;

/* A segment number per row: integers of `size` bytes. */
typedef struct {
    const unsigned char *data; /* NULL: `offsets` says which rows are whose */
    ptrdiff_t step;
    size_t size;
    bool is_signed, swapped, skips; /* a row with a negative id is skipped */
    const int64_t *offsets;         /* segment k has rows offsets[k] to offsets[k + 1] - 1 */
} gr_segment_ids;

/* Results of sums, and of sums of squares if how.second_count is not 0, which are stored in place
 * of the sums: the segments' columns one after another. `how.parts` columns make one result.
 * unknown[i] becomes 1 if the sums do not prove result i. 0 / 0 is a nan. */
typedef struct {
    gr_finish_how how;
    const int64_t *counts; /* rows of each segment, or values of each result */
    bool counts_results;
    unsigned char *out, *unknown;
} gr_segment_finish;

/* The sums: a row per segment. If `words` is not NULL, the sums are stored there as words of
 * exact.h: the segments' columns one after another, with `target` as the type and a count of 0. */
typedef struct {
    unsigned char *data;
    int64_t *words;
    const gr_segment_finish *finish; /* or NULL */
    ptrdiff_t row_step, column_step;
    size_t segments;
    gr_load target; /* a float type, or an integer type of the same size for sums modulo 2^64 */
    int parts;      /* 2: complex sums */
    bool is_float;
} gr_segment_sums;

typedef struct {
    gr_segment_values values;
    gr_segment_ids ids;
    gr_segment_sums sums;
    gr_initial initial;
} gr_segments;

typedef enum {
    GR_SEGMENTS_OK,
    GR_SEGMENTS_BAD_ID,   /* an id that is no segment's number: nothing was stored */
    GR_SEGMENTS_NO_MEMORY /* some sums may have been stored */
} gr_segments_status;

/* Adds up, and stores all sums. After GR_SEGMENTS_BAD_ID, `bad_row` is the first row with such an
 * id. After an interruption (threads/interrupts.h) the sums are invalid. */
gr_segments_status gr_sum_segments_on_host(const gr_segments *request, int threads,
                                           size_t *bad_row);

/* Keys of rows: integers from `least` to least + range - 1. */
typedef struct {
    const int64_t *keys;
    size_t rows, range, most; /* `most`: entries of `counts` and `first` */
    int64_t least;
    int64_t *numbers; /* of the group of each key: -1 before the call */
    void *ids;        /* the number of each row's group: int32_t or int64_t */
    size_t ids_size;
    int64_t *counts, *first; /* of each group, its number of rows and its first row */
} gr_numbering;

/* Numbers groups in the order of their first rows. Returns false if a key is out of range. */
bool gr_number_groups(const gr_numbering *of, size_t *groups);
