/* Vector types of VECTOR_BYTES bytes. The including file defines VECTOR_BYTES. The types use GCC's
 * vector extension, so that one source serves every instruction set. */
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
    /* Vectors per bin: enough to hide the latency of an addition, and few enough that three bins
     * and the loop's variables fit the registers. */
    STREAMS = VECTOR_BYTES == 64 ? 4 : 2,
    LONE_STREAMS = 8, /* vectors if there is a single bin */
    BLOCK = 4096      /* elements added up before it is checked that they fit the bins */
};

#define ROW(streams) ((size_t)(streams)*WIDTH) /* elements that go to different bins */

static const uint64_t HIGH_WORD = 0x7fff000000000000; /* masks the sign of a double */

typedef double doubles VECTOR(VECTOR_BYTES);
typedef float floats VECTOR(VECTOR_BYTES / 2);
typedef uint32_t words VECTOR(VECTOR_BYTES / 2);
typedef int64_t lanes64 VECTOR(VECTOR_BYTES);
typedef uint64_t bits64 VECTOR(VECTOR_BYTES);
typedef int16_t lanes16 VECTOR(VECTOR_BYTES);

/* Loads 2 * WIDTH elements as two vectors of doubles. Either in order: the first half and the
 * second half. Or paired: even indexes and odd indexes, which is the cheapest way to split 16-bit
 * elements. */
typedef void load_pair(const unsigned char *in, doubles pair[2]);
typedef enum { IN_ORDER, PAIRED } lane_order;
