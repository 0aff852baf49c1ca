/* Sums in digits, for numbers of any exponents: what an accumulator of exact.h is, cut down to the
 * digits that the data's exponents ask for. Digit k of a cell counts 2^(32 (first + k) - 1074); the
 * word after the digits has the flags of inf and nan.
 *
 * Lemma. A number adds less than 2^32 in size to each of three digits, and a row adds one number to
 * a cell. After a round of GR_ROUND_ROWS = 2^30 rows at most, a digit that began between 0 and 2^32
 * is below 2^63 in size. Between two rounds the digits are carried: to 0 to 2^32 - 1 each, except
 * for the last one, which takes the rest. Of the highest numbers the last digit gets 2^20 at most,
 * so it does not overflow before 2^42 rows. */
#include "segments/segment_job.h"

#include "exact/format.h"

#include <string.h>

static uint64_t bits_at(const gr_segment_block *block, size_t i)
{
    uint64_t bits;
    memcpy(&bits, (const double *)block->numbers + i, sizeof bits);
    return bits;
}

static void widen(uint64_t bits, gr_field_range *range)
{
    int field = (int)(bits >> 52 & 0x7ff);
    if (field == 0x7ff || bits << 1 == 0)
        return;
    field = field ? field : 1;
    range->least = field < range->least ? field : range->least;
    range->most = field > range->most ? field : range->most;
}

void gr_widen_fields(const gr_host_segments *job, const gr_segment_block *block,
                     gr_field_range *range)
{
    for (size_t i = 0; i < block->rows; i++) {
        size_t id = (size_t)block->ids[i];
        bool counts =
            id < job->request->sums.segments && (!job->number || job->number[id] != SIZE_MAX);
        for (size_t k = 0; counts && k < block->columns; k++)
            widen(bits_at(block, i * block->columns + k), range);
    }
}

static void add_number(const gr_host_segments *job, uint64_t bits, int64_t *cell)
{
    const uint64_t one = (uint64_t)1 << 52;
    uint64_t field = bits >> 52 & 0x7ff;
    if (field == 0x7ff) {
        cell[job->digits] |= gr_element_flag(bits, gr_format_of(GR_LOAD_f64));
        return;
    }
    uint64_t mantissa = (bits & (one - 1)) | (field ? one : 0);
    int64_t sign = bits >> 63 ? -1 : 0;
    uint64_t place = field ? field - 1 : 0; /* the mantissa's last bit, in units of 2^-1074 */
    if (mantissa == 0)
        return;
    unsigned __int128 shifted = (unsigned __int128)mantissa << place % 32;
    uint64_t first = place / 32 - (uint64_t)job->first_digit;
    if (first > (uint64_t)job->digits - 3) /* another thread has changed the array meanwhile */
        return;
    int64_t *digit = cell + first;
    for (int k = 0; k < 3; k++, shifted >>= 32)
        digit[k] += ((int64_t)(uint32_t)shifted ^ sign) - sign;
}

void gr_add_digits(const gr_host_segments *job, const gr_segment_block *block, int64_t *cells)
{
    size_t words = (size_t)job->digits + 1, end = job->segments * job->columns;
    for (size_t i = 0; i < block->rows; i++) {
        size_t first = gr_cell_of(job, block, i);
        int64_t *cell = cells + first * words;
        if (first >= end) /* its segment is not added up, so it may need other digits */
            continue;
        for (size_t k = 0; k < block->columns; k++, cell += words)
            add_number(job, bits_at(block, i * block->columns + k), cell);
    }
}

void gr_carry_digits(const gr_host_segments *job, int64_t *cells, size_t n)
{
    for (size_t i = 0; i < n; i++, cells += job->digits + 1)
        for (int k = 0; k + 1 < job->digits; k++) {
            int64_t carry = cells[k] >> 32;
            cells[k] -= (int64_t)((uint64_t)carry << 32);
            cells[k + 1] += carry;
        }
}

void gr_finish_digits(const gr_host_segments *job, size_t first, size_t n)
{
    for (size_t cell = first; cell < first + n; cell++) {
        gr_exact sum;
        gr_exact_init(&sum);
        const unsigned char *at = job->cells + cell * job->cell_bytes;
        for (int i = 0; i < job->copies; i++, at += job->copy_bytes) {
            const int64_t *words = (const int64_t *)(const void *)at;
            gr_exact_add_digits(&sum, words, (size_t)job->digits, (size_t)job->first_digit);
            sum.flags |= (uint32_t)words[job->digits];
        }
        gr_store_accumulator(job, &sum, cell);
    }
}
