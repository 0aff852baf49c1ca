/* The table of strategies: first the lines of strategies.def, then the lines of steps.def. */
#ifndef GPUREDUCE_REGISTRY_H
#define GPUREDUCE_REGISTRY_H

#include "shared/c_linkage.h"

GR_C_BEGIN

/* The properties of a strategy that the engine needs to launch it. */
#define GR_TRAITS(X)                                                                               \
    X(ONE, 0) /* one element per thread: the grid covers the input. This one and the next are the  \
                 digits of a binary number: ONE | TWO are three */                                 \
    X(TWO, 1)                                                                                      \
    X(FOUR, 26)                                                                                    \
    X(EIGHT, 27)                                                                                   \
    X(SIXTEEN, 28)                                                                                 \
    X(THIRTY_TWO, 29)                                                                              \
    X(MANY, 2)           /* a grid-stride loop: the grid fills the device */                       \
    X(PARTIALS, 3)       /* leaves a sum per block (or cluster) in out[] */                        \
    X(FINISHES, 4)       /* leaves the sum in out[0]; with PARTIALS, beside block sums */          \
    X(ZEROED, 5)         /* needs out[0] to be zero at the start */                                \
    X(SHARED_THREADS, 6) /* shared memory: an accumulator per thread */                            \
    X(SHARED_TWICE, 30)  /* with SHARED_THREADS: two accumulators per thread */                    \
    X(SHARED_WARPS, 7) /* shared memory: an accumulator per warp; with CLUSTER and ALONE, followed \
                          by one per block */                                                      \
    X(WORK_ELEMENTS, 8)   /* fourth argument: an accumulator per thread of the grid */             \
    X(WORK_BLOCKS, 9)     /* fourth argument: an accumulator per block */                          \
    X(WORK_LIBRARY, 10)   /* scratch memory; the library defines its size */                       \
    X(TICKET, 11)         /* fifth argument: a counter, zero between launches */                   \
    X(COOPERATIVE, 12)    /* cooperative launch: the whole grid is resident */                     \
    X(CLUSTER, 13)        /* launched in clusters of GR_CLUSTER_BLOCKS */                          \
    X(BLOCK_TEMPLATE, 14) /* compiled once per power-of-two block size */                          \
    X(UNORDERED, 15)      /* floats add up in an order that changes from run to run */             \
    X(ALONE, 16)          /* a single block or cluster sums the whole input */                     \
    X(RING, 17)           /* shared memory: GR_RING_BYTES for bulk copies */                       \
    X(ANY_ELEMENTS, 18)   /* also compiled for GR_LOAD_any */                                      \
    X(OVERLAPS, 19)       /* begins with wait_for_earlier_kernels() */                             \
    X(DIGITS, 20)         /* leaves an exact sum's digits in out[] (exact/device_layout.h); fourth \
                             argument: GR_EXACT_WORDS words, zero between launches */              \
    X(MARKED_BLOCKS, 21)  /* fourth argument: a marked accumulator per block (device.h), twice as  \
                             large as a plain one, zero between launches */                        \
    X(ROWS, 22)           /* sums along an axis whose elements are neighbours in memory */         \
    X(ADDS_SHARES, 24)    /* also compiled for sums that prove their rounding as elements */       \
    X(COLUMNS, 23)        /* sums along an axis, where neighbouring sums are of neighbours */      \
    X(SHARED_KEYS, 25)    /* shared memory: an accumulator per key */

typedef enum {
#define X(name, bit) name = 1 << bit,
    GR_TRAITS(X)
#undef X
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
    GR_KIND_KEYS,
    GR_KIND_SCAN
} gr_kind;

typedef enum {
    GR_DTYPES_ALL,
    GR_DTYPES_INT32,
    GR_DTYPES_COMPLEX,
    GR_DTYPES_ANY,
    GR_DTYPES_FLOATS,
    GR_DTYPES_MOMENTS,
    GR_DTYPES_WORDS,
    GR_DTYPES_FLOAT_WORDS,
    GR_DTYPES_MERGED,
    GR_DTYPES_RUNS,
    GR_DTYPES_FLOAT_SUMS,
    GR_DTYPES_PARTS,
    GR_DTYPES_UNTYPED,
    GR_DTYPES_PLAIN,
    GR_DTYPES_WIDE
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

/* Adds a strategy after those of the tables. Returns its index, or -1 if there is no room. The
 * caller serializes calls, and keeps the strategy's strings alive. */
enum { GR_MAX_ADDED_STRATEGIES = 1024 };
int gr_add_strategy(const gr_strategy *strategy);
int gr_is_added_strategy(int index);

GR_C_END
#endif
