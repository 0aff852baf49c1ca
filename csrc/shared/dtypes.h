/* Element and accumulator types, shared by every layer. Includes neither Python nor CUDA. */
#ifndef GPUREDUCE_DTYPES_H
#define GPUREDUCE_DTYPES_H

#include <stddef.h>
#include <stdint.h>

/* These lists are tables. */
/* clang-format off */

/* The element types that kernels read. */
#define GR_LOADS(X) \
    X(i8) X(u8) X(i16) X(u16) X(i32) X(u32) X(u64) X(f16) X(bf16) X(f32) X(f64)

/* The accumulator types. */
#define GR_ACCS(X) X(u32) X(u64) X(f32) X(f64)

/* The (load, accumulator) pairs that kernels are compiled for. The last pair of each accumulator,
 * such as (f32, f32), also adds up block sums. dtype="int32" adds 32-bit integers in u32, as the
 * lectures' ladder does. */
#define GR_PAIRS_INT32(X) X(u32, u32)
#define GR_PAIRS_ALL(X) \
    X(i8, u64) X(u8, u64) X(i16, u64) X(u16, u64) X(i32, u64) X(u32, u64) X(u64, u64) \
    X(u32, u32) \
    X(f16, f32) X(bf16, f32) X(f32, f32) \
    X(f32, f64) X(f64, f64)

/* For a strategy that adds floats in its own digits, whichever accumulator is requested. */
#define GR_PAIRS_COMPLEX(X) X(f16, f32) X(bf16, f32) X(f32, f32) X(f64, f64)

/* For a strategy that reads elements of any type. */
#define GR_PAIRS_ANY(X)
#define GR_PAIRS_FLOATS(X)

/* For kernels of sums by segment: elements that become integers, the sums of parts of segments, and
 * kernels that read no elements. */
#define GR_PAIRS_WORDS(X) \
    X(i8, u64) X(u8, u64) X(i16, u64) X(u16, u64) X(i32, u64) X(u32, u64) X(u64, u64) \
    X(f16, u64) X(bf16, u64) X(f32, u64) X(f64, u64)
#define GR_PAIRS_FLOAT_WORDS(X) X(f16, u64) X(bf16, u64) X(f32, u64) X(f64, u64)
#define GR_PAIRS_MERGED(X) X(u64, u64) X(f32, f32) X(f64, f64) X(f32, proven) X(f64, proven3)
#define GR_PAIRS_RUNS(X) \
    X(i8, u64) X(u8, u64) X(i16, u64) X(u16, u64) X(i32, u64) X(u32, u64) X(u64, u64) \
    X(f16, proven) X(bf16, proven) X(f32, proven)
#define GR_PAIRS_FLOAT_SUMS(X) GR_PAIRS_COMPLEX(X) GR_PAIRS_PROVEN(X)
#define GR_PAIRS_PARTS(X) X(f64, moments)
#define GR_PAIRS_UNTYPED(X) X(u64, u64)
#define GR_PAIRS_PLAIN(X) X(f32, f32) X(f64, f64)
#define GR_PAIRS_WIDE(X) X(u32, u32) X(u64, u64) X(f32, f32) X(f64, f64)

/* The same for sums that prove their rounding (exact/proven.h). */
#define GR_PAIRS_PROVEN(X) X(f16, proven) X(bf16, proven) X(f32, proven) X(f64, proven3)

/* The same for sums of x and x^2. */
#define GR_PAIRS_MOMENTS(X) X(f16, moments) X(bf16, moments) X(f32, moments) X(f64, moments)

/* The accumulators that strided arrays and casts are compiled for. */
#define GR_VIEWS_NONE(X)
#define GR_VIEWS_ALL(X) GR_ACCS(X)
#define GR_VIEWS_COMPLEX(X) X(f64)
#define GR_VIEWS_ANY(X) GR_ACCS(X) X(proven) X(proven3) X(moments)
#define GR_VIEWS_FLOATS(X) X(f64)

/* clang-format on */

typedef enum {
#define X(name) GR_LOAD_##name,
    GR_LOADS(X)
#undef X
        GR_LOAD_COUNT,
    GR_LOAD_any = GR_LOAD_COUNT + 1,     /* strided or cast elements: see shared/elements.h */
    GR_LOAD_samples = GR_LOAD_COUNT + 2, /* samples of a function: see shared/samples.h */
    GR_LOAD_proven = GR_LOAD_COUNT + 3,  /* sums of shares that prove their rounding */
    GR_LOAD_proven3 = GR_LOAD_COUNT + 4,
    GR_LOAD_moments = GR_LOAD_COUNT + 5
} gr_load;

typedef enum {
#define X(name) GR_ACC_##name,
    GR_ACCS(X)
#undef X
        GR_ACC_COUNT,
    GR_ACC_proven = GR_ACC_COUNT, /* for elements of at most 24 bits: exact/proven.h */
    GR_ACC_proven3 = GR_ACC_COUNT + 1,
    GR_ACC_moments = GR_ACC_COUNT + 2
} gr_acc;

static inline size_t gr_load_size(gr_load load)
{
    switch (load) {
    case GR_LOAD_i8:
    case GR_LOAD_u8: return 1;
    case GR_LOAD_i16:
    case GR_LOAD_u16:
    case GR_LOAD_f16:
    case GR_LOAD_bf16: return 2;
    case GR_LOAD_i32:
    case GR_LOAD_u32:
    case GR_LOAD_f32: return 4;
    default: return 8;
    }
}

static inline size_t gr_acc_size(gr_acc acc)
{
    return acc == GR_ACC_u32 || acc == GR_ACC_f32 ? 4 : 8;
}

/* The value of one accumulator of any type. */
typedef union {
    uint32_t u32;
    uint64_t u64;
    float f32;
    double f64;
} gr_value;

#endif
