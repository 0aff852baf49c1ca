/* Sums by segment, as kernels get them, and the fixed-point words that they are added up in.
 *
 * A sum of floats is the integer formed by `words` signed 64-bit words, word k in units of
 * 2^(k width), times the least power of two that the values need. Integers do not care for the
 * order of additions, so atomic additions in any order give the same bits. */
#ifndef GPUREDUCE_SEGMENT_SUMS_H
#define GPUREDUCE_SEGMENT_SUMS_H

#include "shared/host_device.h"
#include "shared/matrix.h"

/* Rows of values or of sums. Steps are in bytes. A complex number has two parts, and each part is a
 * column: column c is part c % parts of number c / parts. */
typedef struct {
    const void *base;
    int64_t row_step, number_step, part_step;
    unsigned parts;
} gr_rows;

/* Integers: ids or offsets. int64 counts as u64: a negative number is then a large one. */
typedef struct {
    const void *base;
    int64_t step; /* bytes */
    gr_load load;
} gr_index;

enum {
    GR_HOT_IDS = 512,          /* ids that a sample finds often */
    GR_HOT_SLOTS = 2048,       /* of the table that finds them, in each block's shared memory */
    GR_HOT_COPIES = 2,         /* copies of each of their sums */
    GR_SAMPLED_IDS = 4096,     /* ids in the sample */
    GR_SPARE_BITS = 8,         /* least bits of words for values below those of the sample */
    GR_SAMPLE_SLOTS = 8192,    /* slots of the sample's hash table */
    GR_CHECKED_BITS = 57,      /* most bits of an element in a checked word */
    GR_OVERLAPPING = 4,        /* most overlapping words of a sum */
    GR_STRIP_ROWS = 256,       /* rows that a warp of segment_runs sums at once */
    GR_SEGMENT_THREADS = 1024, /* per block of the kernels with sums in shared memory */
    GR_FEW_ROWS = 4096,        /* most rows of segment_few, .. */
    GR_FEW_SEGMENTS = 256,     /* .. and most segments per block, whose shared memory has .. */
    GR_FEW_ROOM = 256 * 32,    /* .. this many bytes for sums of its threads, and .. */
    GR_FEW_BYTES = 17 * 1024   /* .. at most these for the places of the segments' rows */
};

/* The words of a sum. */
typedef struct {
    int low;           /* exponent of the lowest word's unit, counted from the least subnormal's */
    unsigned width;    /* bits per word; the topmost word may have more */
    unsigned words;    /* words per sum, without the flags' one */
    unsigned flags;    /* 1: a further word has the flags of inf and nan */
    int checked;       /* additions to the topmost word are checked for overflow */
    int overlaps;      /* an element goes whole to one word, even if longer than `width` */
    unsigned room;     /* all bits of elements lie in this many bits from `low` on */
    uint64_t per_pass; /* segments of a pass */
    uint64_t sum_step, word_step; /* words from one sum to the next, and between words of a sum */
} gr_word_plan;

/* The exponents of some values: finite values are below 2^high and multiples of 2^~low, where
 * exponents count from that of the least subnormal. All zero before any are known. */
typedef struct {
    unsigned high, low;
    unsigned specials; /* whether there is an inf or nan */
} gr_extremes;

/* What kernels find out about ids and values. All zero at first. Places are stored as complements,
 * so that the maximum is the first place. */
typedef struct {
    uint64_t bad;           /* ~place of the first id or offset that is out of range */
    uint64_t unsorted;      /* ~place of the first id below the one before it */
    gr_extremes sample;     /* of a sample of the values */
    gr_extremes seen;       /* of all values, once a kernel has read them */
    unsigned leaves_zeros;  /* segment_round has left -0.0 alone, to which 0 is added */
    unsigned overflow;      /* a checked word left its range, or words do not hold all values */
    unsigned any_unproven;  /* as in gr_sums */
    unsigned long_segments; /* entries of `longs` */
    uint64_t tasks;
    uint64_t largest; /* the largest id, with its sign bit flipped */
    uint64_t claimed; /* places in `order` (low 32 bits) and in `own` that segments have */
    unsigned hot;
    uint64_t hot_id[GR_HOT_IDS];
    gr_word_plan plan; /* the attempt's plan, written by segment_clear */
} gr_segment_state;

/* A segment that has rows, and where in `order` their numbers are. */
typedef struct {
    uint64_t k;
    unsigned begin, end;
} gr_own_segment;

/* A part of a long segment, which a block adds up: rows from `begin` to `end`. */
typedef struct {
    uint64_t segment, begin, end; /* `segment` is a place in `longs`; in segment_runs, an id */
} gr_segment_task;

/* A long segment and its tasks. */
typedef struct {
    uint64_t segment, first, count;
} gr_long_segment;

typedef struct {
    gr_rows values, out;
    gr_index index; /* ids, or the caller's offsets */
    uint64_t rows, columns, segments;
    gr_sums sums; /* without `base` */
    gr_segment_state *state;
    int by_offsets;        /* `index` has offsets */
    int in_place;          /* rows are added to what `out` holds; other sums are left alone */
    int stops;             /* a wrong id stops the kernels */
    int by_row;            /* fewer rows than segments: only segments with rows have numbers */
    int try_sorted;        /* if the ids are sorted, segment_rows adds up */
    uint64_t *offsets;     /* of sorted ids: written by segment_bounds */
    unsigned *order;       /* the numbers of the rows, segment by segment; NULL: not in use */
    unsigned *counts;      /* rows of each segment */
    unsigned *places;      /* each row's place among the rows of its segment */
    unsigned *ends;        /* end of each segment's rows in `order` */
    gr_own_segment *own;   /* by_row: the segments that have rows; NULL: not in use */
    int orders_in_shared;  /* blocks count rows in shared memory first */
    char *staged;          /* sums of segment_runs, contiguous; NULL: it is not launched */
    uint64_t *words;       /* `room` words of sums */
    uint64_t room;         /* words */
    uint64_t cached_words; /* words that stay in the L2 cache */
    uint64_t shared_words; /* words that fit a block's shared memory; 0: none are kept there */
    int load;              /* a gr_load: the values' type */
    unsigned sampled;      /* the sample has 1 of this many parts of the values; 1: no sample */
    int in_sample;         /* segment_range reads the sample */
    unsigned width;        /* of a word: gr_word_width() */
    unsigned overlap;      /* the width of words that overlap: gr_overlap_width(); 0: none do */
    int attempt;           /* 0: with a checked word where that saves one; 1: without, if a word of
                              attempt 0 overflowed; 2: without, in place of both */
    unsigned pass, passes; /* the number of this range of segments, and how many there may be */
    unsigned lanes;        /* lanes per segment, in segment_rows */
    unsigned few;          /* segments of a block of segment_few */
    uint64_t long_rows;    /* longer segments are cut into tasks */
    uint64_t task_rows;    /* rows of a task, or of a warp of segment_runs */
    gr_segment_task *task; /* of segment_runs: two per warp, of which only `segment` is in use */
    gr_long_segment *longs;
    uint64_t task_room, long_room; /* entries of both */
    void *partial;                 /* the tasks' sums */
    unsigned *arrived;             /* per long segment and 32 columns: tasks that are done */
} gr_segment_job;

/* The words of a block of segment_few that mark its unproven sums. */
GR_HOST_DEVICE unsigned gr_few_marks(const gr_segment_job *of)
{
    return (unsigned)(of->few * of->columns / 32 + 1);
}

/* The bits per word for which overflow is impossible. With width = 63 - ceil(log2(rows)), each
 * element adds less than 2^width in size to a word, so any sum of elements in a word stays below
 * rows 2^width <= 2^63. */
static inline unsigned gr_word_width(uint64_t rows)
{
    unsigned width = 62;
    while (width > 1 && rows && (rows - 1) >> (63 - width))
        width--;
    return width;
}

/* An element of `bits` bits touches ceil(bits / width) words. If one word less holds each element,
 * though not every sum, the first attempt uses one less and checks each addition to the topmost
 * word. If one overflows, the second attempt adds everything again. An element adds less than 2^57
 * to a checked word, so the sum of a warp's 32 elements cannot overflow. */
GR_HOST_DEVICE gr_word_plan gr_plan_words(unsigned high, unsigned low, unsigned specials,
                                          int is_float, int attempt, unsigned width)
{
    gr_word_plan plan = {0, 64, 1, 0, 0, 0, 64, 0, 1, 1};
    if (is_float) {
        unsigned bits = high > low ? high - low : 0;
        unsigned words = bits <= width ? 1 : (bits + width - 1) / width;
        plan.low = high > low ? (int)low : 0; /* all values may be 0 */
        plan.width = width;
        plan.flags = specials != 0;
        plan.checked = attempt == 0 && words > 1 && bits <= width * (words - 2) + GR_CHECKED_BITS;
        plan.words = words - (unsigned)plan.checked;
        plan.room = plan.checked ? width * (words - 2) + GR_CHECKED_BITS : width * words;
        plan.sum_step = plan.words + plan.flags;
    }
    return plan;
}

/* The width of overlapping words, for elements of up to 24 bits. Each element is added whole to one
 * word: the one whose own `width` bits include the element's lowest bit. So an element takes one
 * addition, and needs no check: it adds less than 2^(width + 23) in size, and this width makes rows
 * 2^(width + 23) <= 2^63. */
static inline unsigned gr_overlap_width(uint64_t rows)
{
    unsigned width = gr_word_width(rows);
    return width > 30 ? width - 23 : 0;
}

/* Chooses overlapping words where other words would need several additions per element, or checks.
 * Most elements go to the word of the largest ones: the first words of all sums are adjacent, then
 * the second ones, so few cache lines are in use. Elements of very different sizes would need too
 * many words. */
GR_HOST_DEVICE void gr_let_overlap(gr_word_plan *plan, const gr_segment_job *of, unsigned bits)
{
    uint64_t sums = of->segments * of->columns;
    if (!of->overlap || of->state->hot || (plan->words == 1 && !plan->checked))
        return;
    unsigned words = bits > 24 ? (bits - 24) / of->overlap + 1 : 1;
    if (words > GR_OVERLAPPING || words + plan->flags > of->room / sums)
        return;
    plan->width = of->overlap;
    plan->words = words;
    plan->room = of->overlap * words + 23;
    plan->checked = 0;
    plan->overlaps = 1;
    plan->per_pass = of->segments;
    plan->sum_step = 1;
    plan->word_step = sums;
}

/* Returns the number of segments per pass. A pass's words should stay in the L2 cache, must fit the
 * room, and the launched passes must cover all segments. */
GR_HOST_DEVICE uint64_t gr_segments_per_pass(const gr_segment_job *of, const gr_word_plan *plan)
{
    uint64_t words = of->columns * (plan->words + plan->flags);
    uint64_t most = of->room / words, cached = of->cached_words / words;
    uint64_t least = of->passes ? (of->segments + of->passes - 1) / of->passes : 0;
    uint64_t wanted = cached > least ? cached : least;
    return wanted < most ? wanted : most;
}

#endif
