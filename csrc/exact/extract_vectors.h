/* Sizes and vector types of the extraction. */
#include "cpu/floating_point_mode.h"
#include "cpu/vectors.h"
#include "exact/extract.h"

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__)
#error "(bin + x) - bin is not x here: compile without -ffast-math and -fassociative-math"
#endif

enum {
    /* Vectors per bin: enough to hide the latency of an addition, and few enough that three bins
     * and the loop's variables fit the registers. */
    STREAMS = VECTOR_BYTES == 64 ? 4 : 2,
    LONE_STREAMS = 8, /* vectors if there is a single bin */
    BLOCK = 4096      /* elements added up before it is checked that they fit the bins */
};

#define ROW(streams) ((size_t)(streams)*WIDTH) /* elements that go to different bins */

static const uint64_t HIGH_WORD = 0x7fff000000000000; /* masks the sign of a double */

typedef int64_t lanes64 VECTOR(VECTOR_BYTES);
typedef uint64_t bits64 VECTOR(VECTOR_BYTES);
typedef int16_t lanes16 VECTOR(VECTOR_BYTES);
