/* Vectors of VECTOR_BYTES bytes, for the file that has defined it. They are the compilers' own
 * (GCC's vector extension), so that one text serves every instruction set. */
#include "cpu/floating_point_mode.h"
#include "exact/extract.h"

#include <string.h>

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error "(bin + x) - bin is not x here: compile without -ffast-math and -fassociative-math"
#endif

#define INLINE static inline __attribute__((always_inline))
#define VECTOR(bytes) __attribute__((vector_size(bytes)))

enum {
    WIDTH = VECTOR_BYTES / 8, /* doubles in a vector */
    /* Vectors of bins: enough to hide the latency of an addition, and three bins of each, with what
     * the loop works on, fit the registers. */
    STREAMS = VECTOR_BYTES == 64 ? 4 : 2,
    LONE_STREAMS = 8, /* where there is but one bin of each */
    BLOCK = 4096      /* elements that are added up before they are known to fit the bins */
};

#define ROW(streams) ((size_t)(streams)*WIDTH) /* elements that go to different bins */

static const uint64_t HIGH_WORD = 0x7fff000000000000; /* of a double, without its sign */

typedef double doubles VECTOR(VECTOR_BYTES);
typedef float floats VECTOR(VECTOR_BYTES / 2);
typedef uint32_t words VECTOR(VECTOR_BYTES / 2);
typedef int64_t lanes64 VECTOR(VECTOR_BYTES);
typedef uint64_t bits64 VECTOR(VECTOR_BYTES);
typedef int16_t lanes16 VECTOR(VECTOR_BYTES);

/* How 2 * WIDTH elements become two vectors of doubles. Either in order, the first half and the
 * second; or paired, those at even indexes and those at odd ones, which is how 16-bit elements come
 * apart most cheaply. */
typedef void load_pair(const unsigned char *in, doubles pair[2]);
typedef enum { IN_ORDER, PAIRED } lane_order;
