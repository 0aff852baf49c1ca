/* Divides sums along axes into tasks for threads, and finds for each task how its elements can be
 * read: as rows, whose elements are added to one sum, or as columns, a row of which goes to many
 * sums, one element each. How elements are added is up to the caller's functions (gr_axis_adder).
 *
 * Rows, if the fastest-varying dimension is reduced. Rows that are not contiguous are gathered.
 * Long rows are divided into pieces.
 *
 * Columns, if it is kept. Tiles of columns are added up row by row, 128 rows at a time: a leaf.
 * Where rows are many and tiles few, the rows are divided into chunks of 2^k leaves. Tiles of few
 * rows are added up and stored in strips. Rows of few contiguous columns are folded: several of
 * them are read as one row, and their columns are added up at the end. Columns that are not
 * contiguous, or that are few and cannot be folded, are packed: gathered, 128 rows of up to 128
 * columns at a time.
 *
 * The tasks depend on sizes, steps and types alone. So do the order of additions and the bits of
 * the sums, whatever the number of threads. */
#pragma once

#include "shared/axes.h"
#include "threads/interrupts.h"

enum {
    GR_LEAF_ROWS = 128,   /* rows that one call of `add` gets at most */
    GR_CHUNK_BLOCKS = 8,  /* blocks of 1024 elements that are gathered at once */
    GR_PIECE_BLOCKS = 64, /* blocks of the smallest piece of a long row */
    GR_MOST_VECTOR = 16   /* columns are added in groups of 4, 8 or 16 */
};

typedef struct gr_axis_job gr_axis_job;

/* Sums at equal distances: the addresses of their first elements and of their results. */
typedef struct {
    const unsigned char *in, *mask;
    unsigned char *out;
    ptrdiff_t in_step, mask_step, out_step;
    size_t count;
} gr_axis_run;

/* The sums of a tile of columns, while rows are added: planes of float64 or uint64 numbers, one per
 * column, `stride` apart. Columns are kept in groups as the kernels add them: gr_column_place(). */
typedef struct {
    double *planes;
    size_t stride, width;
    size_t leaves;       /* added so far */
    bool more;           /* more leaves will follow */
    bool assumed, right; /* see gr_axis_adder.assume */
    int pause;           /* a counter for the adder; 0 at first */
    ptrdiff_t other;     /* of products: bytes from a row to that of second factors */
} gr_columns;

typedef struct {
    /* Stores the sums of rows of n contiguous elements, `step` bytes apart. The second factors of
     * products are at run->mask. */
    void (*rows)(const gr_axis_job *job, const unsigned char *in, ptrdiff_t step, size_t n,
                 const gr_axis_run *run);

    /* Adds up a piece of a long row: n elements from `first` on. Then stores the sum of all pieces.
     * `buffer` is for gr_axis_chunk(). */
    size_t partial_size;
    void (*piece)(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                  unsigned char *buffer, void *partial);
    void (*total)(const gr_axis_job *job, const gr_axis_run *row, void *partials, size_t pieces);

    /* Columns: starts sums, adds rows to them, ends a chunk (whose sums are then in the first
     * `kept_planes`), adds the sums of a later chunk, adds up columns that are `width` apart, and
     * stores the sums of run->count columns from `first` on. Arithmetic is plain there
     * (floating_point_mode.h). */
    int kept_planes;
    int (*planes)(const gr_axis_job *job);
    void (*start)(const gr_axis_job *job, gr_columns *sums);
    void (*add)(const gr_axis_job *job, gr_columns *sums, const unsigned char *const *rows,
                size_t count);
    void (*end)(const gr_axis_job *job, gr_columns *sums);
    void (*merge)(const gr_axis_job *job, gr_columns *sums, const double *later);
    void (*fold)(const gr_axis_job *job, gr_columns *sums, size_t width);
    void (*store)(const gr_axis_job *job, gr_columns *sums, size_t first, const gr_axis_run *run);

    /* For strips, or NULL: returns whether a fast method, assumed to be right, may add up all
     * strips of a tile. If sums->right is not set after the last one, all strips are added up and
     * stored again. */
    bool (*assume)(const gr_axis_job *job, gr_columns *sums);
} gr_axis_adder;

struct gr_axis_job {
    const gr_axis_adder *adder;
    const void *context; /* the caller's */
    gr_axes *axes;
    const gr_axes *factors; /* the second factors of products, as elements; or NULL */
    int parts;              /* 2 for complex elements, whose parts are neighbouring columns */
    size_t n;               /* elements of a sum */
    size_t size;            /* bytes of an element; in columns, of a part */
    size_t short_rows;      /* rows of fewer elements are added up as columns */
    size_t few_rows;        /* columns of at most this many rows are summed strip by strip */
    size_t vector;          /* columns of a group */
    size_t tile;            /* most columns that are added up together */
    int planes;             /* planes of a tile, at least `kept_planes` */
    int threads;            /* as in gr_parallel(); 1 only if sums do not depend on the order */

    /* Chosen by gr_axis_run_job(). */
    bool fetches;    /* the array is larger than caches */
    bool contiguous; /* rows need not be gathered */
    size_t pieces, piece;
    size_t units, unit_sums, each, width, tiles, folded, rows, chunks, chunk;
    int form;
    void *partials;
    bool failed;
    const gr_interrupts *watch; /* the watch of the calling thread */
};

/* Runs the job: its sums are stored when this returns true. Returns false if there is too little
 * memory. After an interruption (threads/interrupts.h) the sums are invalid. */
bool gr_axis_run_job(gr_axis_job *job);

/* Whether long loops should stop. For pool workers too, which have no watch of their own. */
bool gr_axis_is_interrupted(const gr_axis_job *job);

/* Finds the next contiguous elements of a row, of the n from `first` on: as many as lie in place,
 * or as fit the buffer of GR_CHUNK_BLOCKS blocks. Sets *in to them and *other, unless NULL, to the
 * second factors of products. Returns their number; 0 after the last one or after an
 * interruption. */
size_t gr_axis_chunk(const gr_axis_job *job, const gr_axis_run *row, size_t first, size_t n,
                     unsigned char *buffer, const unsigned char **in, const unsigned char **other);

/* Rows that were packed start and end with whole groups of columns. In other rows, the last group
 * holds the last columns, so it overlaps the group before it. */
static inline size_t gr_columns_whole(const gr_columns *sums, size_t vector)
{
    return sums->width / vector * vector;
}

static inline size_t gr_column_place(const gr_columns *sums, size_t vector, size_t column)
{
    size_t whole = gr_columns_whole(sums, vector);
    return column < whole ? column : whole + vector - (sums->width - column);
}

/* The numbers of a plane that are in use: whole groups. */
static inline size_t gr_columns_used(const gr_columns *sums, size_t vector)
{
    return (sums->width + vector - 1) / vector * vector;
}

/* Stores the sums of run->count columns from `first` on, from one plane. */
void gr_store_columns(const gr_columns *sums, const double *plane, size_t vector, size_t first,
                      const gr_axis_run *run, gr_load target);
