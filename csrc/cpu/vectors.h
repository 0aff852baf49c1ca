/* Vector types of VECTOR_BYTES bytes. The including file defines VECTOR_BYTES. The types use GCC's
 * vector extension, so that one source serves every instruction set. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define VECTOR(bytes) __attribute__((vector_size(bytes)))

enum { WIDTH = VECTOR_BYTES / 8 }; /* doubles in a vector */

typedef double doubles VECTOR(VECTOR_BYTES);
typedef float floats VECTOR(VECTOR_BYTES / 2);
typedef uint32_t words VECTOR(VECTOR_BYTES / 2);

/* Locality for __builtin_prefetch: the second-level cache. The first level takes too few lines at a
 * time for the full speed of memory: 15 of 25 GB/s (EPYC). */
enum { SECOND_LEVEL = 2 };

/* Loads 2 * WIDTH elements as two vectors of doubles. In order, these are the first half and the
 * second half. Paired, they are the even and the odd indexes, which is the cheapest way to split
 * 16-bit elements. */
typedef void load_pair(const unsigned char *in, doubles pair[2]);
typedef enum { IN_ORDER, PAIRED } lane_order;
