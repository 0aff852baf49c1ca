/* The table of strategies: first the lines of strategies.def, then the lines of steps.def. */
#ifndef GPUREDUCE_REGISTRY_H
#define GPUREDUCE_REGISTRY_H

#ifdef __cplusplus
extern "C" {
#endif

/* The properties of a strategy that the engine needs to launch it. */
typedef enum {
    ONE = 1 << 0, /* one element per thread: the grid covers the input. This one and the
                     next are the digits of a binary number: ONE | TWO are three */
    TWO = 1 << 1,
    FOUR = 1 << 26,
    EIGHT = 1 << 27,
    SIXTEEN = 1 << 28,
    THIRTY_TWO = 1 << 29,
    MANY = 1 << 2,            /* a grid-stride loop: the grid fills the device */
    PARTIALS = 1 << 3,        /* leaves a sum per block (or cluster) in out[] */
    FINISHES = 1 << 4,        /* leaves the sum in out[0]; with PARTIALS, beside block sums */
    ZEROED = 1 << 5,          /* needs out[0] to be zero at the start */
    SHARED_THREADS = 1 << 6,  /* shared memory: an accumulator per thread */
    SHARED_TWICE = 1 << 30,   /* with SHARED_THREADS: two accumulators per thread */
    SHARED_WARPS = 1 << 7,    /* shared memory: an accumulator per warp; with CLUSTER and ALONE,
                                 followed by one per block */
    WORK_ELEMENTS = 1 << 8,   /* fourth argument: an accumulator per thread of the grid */
    WORK_BLOCKS = 1 << 9,     /* fourth argument: an accumulator per block */
    WORK_LIBRARY = 1 << 10,   /* scratch memory; the library defines its size */
    TICKET = 1 << 11,         /* fifth argument: a counter, zero between launches */
    COOPERATIVE = 1 << 12,    /* cooperative launch: the whole grid is resident */
    CLUSTER = 1 << 13,        /* launched in clusters of GR_CLUSTER_BLOCKS */
    BLOCK_TEMPLATE = 1 << 14, /* compiled once per power-of-two block size */
    UNORDERED = 1 << 15,      /* floats add up in an order that changes from run to run */
    ALONE = 1 << 16,          /* a single block or cluster sums the whole input */
    RING = 1 << 17,           /* shared memory: GR_RING_BYTES for bulk copies */
    ANY_ELEMENTS = 1 << 18,   /* also compiled for GR_LOAD_any */
    OVERLAPS = 1 << 19,       /* begins with wait_for_earlier_kernels() */
    DIGITS = 1 << 20,         /* leaves an exact sum's digits in out[] (exact/device_layout.h);
                                 fourth argument: GR_EXACT_WORDS words, zero between launches */
    MARKED_BLOCKS = 1 << 21,  /* fourth argument: a marked accumulator per block (device.h), twice
                                 as large as a plain one, zero between launches */
    ROWS = 1 << 22,           /* sums along an axis whose elements are neighbours in memory */
    ADDS_SHARES = 1 << 24,    /* also compiled for sums that prove their rounding as elements */
    COLUMNS = 1 << 23,        /* sums along an axis, where neighbouring sums are of neighbours */
    SHARED_KEYS = 1 << 25     /* shared memory: an accumulator per key */
} gr_trait;

/* Six tiles of 32 KiB and a barrier for each: see kernels/bulk_copy.cu. */
enum { GR_RING_BYTES = 6 * (32768 + 8) };

/* Not every device supports the large cluster size; one_cluster uses it on request. */
enum { GR_CLUSTER_BLOCKS = 8, GR_LARGE_CLUSTER_BLOCKS = 16 };
enum { GR_MIN_BLOCK = 32, GR_MAX_BLOCK = 1024, GR_WARP = 32 };

typedef enum {
    GR_KIND_KERNEL,
    GR_KIND_BROKEN,
    GR_KIND_LIBRARY,
    GR_KIND_HOST,
    GR_KIND_EVERYWHERE,
    GR_KIND_CHOICE,
    GR_KIND_AXIS,
    GR_KIND_SEGMENTS,
    GR_KIND_KEYS
} gr_kind;

typedef enum {
    GR_DTYPES_ALL,
    GR_DTYPES_INT32,
    GR_DTYPES_COMPLEX,
    GR_DTYPES_ANY,
    GR_DTYPES_FLOATS,
    GR_DTYPES_WORDS,
    GR_DTYPES_FLOAT_WORDS,
    GR_DTYPES_MERGED,
    GR_DTYPES_RUNS,
    GR_DTYPES_FLOAT_SUMS,
    GR_DTYPES_UNTYPED,
    GR_DTYPES_PLAIN
} gr_dtypes;

typedef struct {
    const char *name;
    gr_kind kind;
    unsigned traits;
    int capability;
    gr_dtypes dtypes;
    const char *aliases;
    const char *lesson;
} gr_strategy;

/* The least number of elements per thread. */
static inline unsigned gr_per_thread(const gr_strategy *strategy)
{
    const unsigned digits[] = {ONE, TWO, FOUR, EIGHT, SIXTEEN, THIRTY_TWO};
    unsigned count = 0;
    for (unsigned i = 0; i < sizeof digits / sizeof *digits; ++i)
        count += strategy->traits & digits[i] ? 1u << i : 0;
    return count ? count : 1;
}

int gr_strategy_count(void);
const gr_strategy *gr_strategy_at(int index);

/* Returns the index of a line of strategies.def, or -1: builds of mutants lack most lines. */
int gr_strategy_named(const char *name);

/* Adds a strategy behind those of strategies.def. Returns its index, or -1 if there is no room. The
 * caller serializes calls, and keeps the strategy's texts. */
enum { GR_MAX_ADDED_STRATEGIES = 1024 };
int gr_add_strategy(const gr_strategy *strategy);
int gr_is_added_strategy(int index);

#ifdef __cplusplus
}
#endif
#endif
