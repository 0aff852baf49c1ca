/* Vectors of VECTOR_BYTES bytes, for the file that has defined it. They are the compilers' own
 * (GCC's vector extension), so that one text serves every instruction set. */
#include "cpu/kernels.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define VECTOR(bytes) __attribute__((vector_size(bytes)))

enum {
    WIDTH = VECTOR_BYTES / 8,       /* doubles in a vector */
    VECTORS = GR_CPU_LANES / WIDTH, /* that hold the lanes */
    /* Sums in flight: enough to hide the latency of an addition, too few to spill registers. */
    SUMS = VECTOR_BYTES == 64 ? 4 : 8
};

typedef double doubles VECTOR(VECTOR_BYTES);
typedef float floats VECTOR(VECTOR_BYTES / 2);
typedef uint32_t words VECTOR(VECTOR_BYTES / 2);

typedef uint64_t lanes64 VECTOR(VECTOR_BYTES);
typedef uint32_t lanes32 VECTOR(VECTOR_BYTES);
typedef uint16_t lanes16 VECTOR(VECTOR_BYTES);

/* How 2 * WIDTH elements become two vectors of doubles. Either in order, the first half and the
 * second; or paired, those at even indexes and those at odd ones, which is how 16-bit elements come
 * apart most cheaply. */
typedef void load_pair(const unsigned char *in, doubles pair[2]);
typedef enum { IN_ORDER, PAIRED } lane_order;

/* memcpy for fewer bytes than `most`, a power of two up to 256. GCC makes that "rep movs", which
 * takes longer to start than most short sums take; this is at most eight moves. */
INLINE void copy_rest(void *to, const unsigned char *from, size_t bytes, size_t most)
{
    unsigned char *out = to;
#pragma GCC unroll 8
    for (size_t piece = most / 2; piece > 0; piece /= 2)
        if (bytes & piece) {
            memcpy(out, from, piece);
            out += piece;
            from += piece;
        }
}

/* Asks for the memory a page further on: processors look ahead by themselves, but stop where a page
 * ends. Measured at 10 to 20 percent for arrays beyond the caches (EPYC Zen 5). Past the end of an
 * array it is harmless, as no prefetch faults; but it is no address C lets a pointer have. */
INLINE void fetch_ahead(const unsigned char *in, size_t bytes)
{
    enum { PAGE = 4096, CACHE_LINE = 64 };
#pragma GCC unroll 8
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)in + PAGE + i));
}
