/* Numbers as pairs: split into 128-bit integers, one function per instruction set. */
#pragma once

#include "segments/segment_job.h"

/* The low and the high words of up to GR_SEGMENT_BLOCK numbers, and the indexes of the numbers that
 * do not fit: those are 0 here. Zeros fit. */
typedef struct {
    uint64_t low[GR_SEGMENT_BLOCK], high[GR_SEGMENT_BLOCK];
    uint16_t outlier[GR_SEGMENT_BLOCK];
    size_t outliers;
} gr_split;

/* Whether numbers may need their high words: in short cells none does, as each is below 2^63 in
 * size. The functions may leave them out then. */
static inline bool gr_has_high_words(gr_pair_window window)
{
    return window.most + 53 - window.spare >= 64;
}

void gr_split_baseline(const double *x, size_t n, gr_pair_window window, gr_split *to);
void gr_split_avx512(const double *x, size_t n, gr_pair_window window, gr_split *to);
void gr_split_avx2(const double *x, size_t n, gr_pair_window window, gr_split *to);

/* Sums whose rounded values are normal numbers or zero: `copies` arrays of adjacent cells.
 */
typedef struct {
    const unsigned char *cells; /* pairs, or short cells */
    bool is_short;
    size_t copy_bytes;
    int copies, unit;    /* cells count 2^unit */
    uint64_t initial[2]; /* added to each sum: low, high */
    bool single;         /* rounded to float32, not to float64 */
} gr_normal_pairs;

/* Rounds the first n sums, or fewer: a multiple of eight. Returns how many. The floating-point mode
 * is plain. */
size_t gr_round_pairs_avx512(const gr_normal_pairs *from, size_t n, unsigned char *to);

/* One number, as vector code does it. Appends i to the outliers if it does not fit. */
static inline void gr_split_one(uint64_t bits, size_t i, gr_pair_window window, gr_split *to)
{
    const uint64_t one = (uint64_t)1 << 52;
    uint64_t shift = (bits >> 52 & 0x7ff) - (uint64_t)window.low;
    bool fits = shift <= (uint64_t)window.most;
    uint64_t sign = bits >> 63 ? UINT64_MAX : 0;
    uint64_t size = ((bits & (one - 1)) | one) >> window.spare;
    size = fits ? size : 0;
    __int128 pair = (int64_t)((size ^ sign) - sign);
    unsigned __int128 shifted = (unsigned __int128)pair << (shift & 127);
    to->low[i] = (uint64_t)shifted;
    to->high[i] = (uint64_t)(shifted >> 64);
    to->outlier[to->outliers] = (uint16_t)i;
    to->outliers += !fits && bits << 1 != 0;
}
