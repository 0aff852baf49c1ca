/* Blocks of elements: gathered, in native byte order, widened; and the ids of their rows. */
#include "segments/segment_job.h"

#include "cpu/floating_point_mode.h"
#include "cpu/gather.h"
#include "cpu/instruction_set.h"
#include "exact/proven_kernels.h"

#include <string.h>

enum { NEAREST_BYTES = 1 << 15 }; /* cells that fit the first-level cache */

/* --- numbers ------------------------------------------------------------------------------- */

/* Compiles a function of this file for AVX2, too, as name_avx2(): its loops become vector code. */
#ifdef __x86_64__
#define ALSO_FOR_AVX2(result, name, parameters, arguments)                                         \
    __attribute__((target("avx2"))) static result name##_avx2 parameters                           \
    {                                                                                              \
        return name arguments;                                                                     \
    }
#define CALL(name, ...)                                                                            \
    (gr_instructions() >= GR_AVX2 ? name##_avx2(__VA_ARGS__) : name(__VA_ARGS__))
#else
#define ALSO_FOR_AVX2(result, name, parameters, arguments)
#define CALL(name, ...) name(__VA_ARGS__)
#endif
#define INLINE static inline __attribute__((always_inline))

#define WIDEN(type, in, n, to)                                                                     \
    for (size_t i = 0; i < (n); i++) {                                                             \
        type x;                                                                                    \
        memcpy(&x, (in) + i * sizeof x, sizeof x);                                                 \
        (to)[i] = (int64_t)x;                                                                      \
    }                                                                                              \
    break

/* Integers of `size` bytes as int64. uint64 numbers from 2^63 on become negative. */
INLINE void widen_integers(const unsigned char *in, size_t n, size_t size, bool is_signed,
                           int64_t *to)
{
    switch (size * 2 + is_signed) {
    case 2: WIDEN(uint8_t, in, n, to);
    case 3: WIDEN(int8_t, in, n, to);
    case 4: WIDEN(uint16_t, in, n, to);
    case 5: WIDEN(int16_t, in, n, to);
    case 8: WIDEN(uint32_t, in, n, to);
    case 9: WIDEN(int32_t, in, n, to);
    default: memcpy(to, in, n * sizeof *to); break;
    }
}

ALSO_FOR_AVX2(void, widen_integers,
              (const unsigned char *in, size_t n, size_t size, bool is_signed, int64_t *to),
              (in, n, size, is_signed, to))

/* Prefetches the next block, as many bytes as this one has. A block may be a page, and hardware
 * prefetchers stop at the end of a page; they suffice while the cells stay in the first-level
 * cache. The address may be past the end of the array: prefetches do not fault, but C allows no
 * such pointer, hence the integer. */
static void fetch_next(const gr_host_segments *job, const unsigned char *in, size_t bytes)
{
    for (size_t i = 0; i < bytes && job->copy_bytes > NEAREST_BYTES; i += 64)
        __builtin_prefetch((const void *)((uintptr_t)in + bytes + i), 0, 2);
}

/* The bytes of a block's numbers, contiguous and in native byte order: in place, or copied. */
static const unsigned char *raw_numbers(const gr_host_segments *job, gr_segment_block *block,
                                        size_t row)
{
    const gr_segment_values *values = &job->request->values;
    size_t parts = (size_t)values->parts, size = gr_load_size(values->load) * parts;
    size_t columns = block->columns / parts;
    gr_spaced from = {
        .in = values->data + (ptrdiff_t)row * values->row_step +
              (ptrdiff_t)(block->first_column / parts) * values->column_step,
        .in_step = values->column_step,
        .size = size,
        .parts = values->parts,
        .swapped = values->swapped,
    };
    bool rows_touch = block->rows == 1 || values->row_step == (ptrdiff_t)(columns * size);
    bool columns_touch = columns == 1 || values->column_step == (ptrdiff_t)size;
    if (rows_touch && columns_touch && !values->swapped) {
        fetch_next(job, from.in, block->rows * columns * size);
        return from.in;
    }
    if (rows_touch && columns_touch) {
        from.in_step = (ptrdiff_t)size;
        gr_gather(block->raw, &from, block->rows * columns);
    } else if (columns == 1) {
        from.in_step = values->row_step;
        gr_gather(block->raw, &from, block->rows);
    } else {
        for (size_t i = 0; i < block->rows; i++, from.in += values->row_step)
            gr_gather(block->raw + i * columns * size, &from, columns);
    }
    return block->raw;
}

void gr_read_numbers(const gr_host_segments *job, gr_segment_block *block, size_t row)
{
    const gr_segment_values *values = &job->request->values;
    const unsigned char *raw = raw_numbers(job, block, row);
    size_t n = block->rows * block->columns, size = gr_load_size(values->load);
    block->numbers = block->number_buffer;
    if (size == 8 && (uintptr_t)raw % sizeof(double) == 0) {
        block->numbers = raw;
    } else if (size == 8) {
        memcpy(block->number_buffer, raw, n * size);
    } else if (job->adds_floats) {
        gr_arithmetic before = gr_begin_plain();
        gr_proven_best()->widen(values->load, raw, n, block->number_buffer);
        gr_end_plain(before);
    } else {
        int64_t wide[GR_SEGMENT_BLOCK];
        CALL(widen_integers, raw, n, size, values->is_signed, wide);
        memcpy(block->number_buffer, wide, n * sizeof *wide);
    }
}

/* --- ids ----------------------------------------------------------------------------------- */

/* Writes each segment's number at its first row. Empty segments begin at the same row as the next
 * one, whose number remains. Later rows get the greatest number so far. */
static void ids_of_offsets(const gr_host_segments *job, gr_segment_block *block, size_t row,
                           size_t *at)
{
    const int64_t *offsets = job->request->ids.offsets;
    size_t rows = block->rows, segments = job->request->sums.segments, k = *at;
    int64_t *ids = block->id_buffer, last;
    memset(ids, 0, rows * sizeof *ids);
    for (ids[0] = last = (int64_t)k; ++k < segments && (size_t)offsets[k] - row < rows;)
        ids[(size_t)offsets[k] - row] = (int64_t)k;
    for (size_t i = 0; i < rows; i++)
        ids[i] = last = ids[i] > last ? ids[i] : last;
    *at = (size_t)last;
}

void gr_read_ids(const gr_host_segments *job, gr_segment_block *block, size_t row, size_t *at)
{
    const gr_segment_ids *ids = &job->request->ids;
    block->ids = block->id_buffer;
    if (!ids->data) {
        ids_of_offsets(job, block, row, at);
        return;
    }
    const unsigned char *in = ids->data + (ptrdiff_t)row * ids->step;
    if (ids->step != (ptrdiff_t)ids->size || ids->swapped) {
        gr_spaced from = {
            .in = in, .in_step = ids->step, .size = ids->size, .parts = 1, .swapped = ids->swapped};
        gr_gather(block->raw, &from, block->rows);
        in = block->raw;
    } else {
        fetch_next(job, in, block->rows * ids->size);
    }
    if (ids->size == 8 && in != block->raw && (uintptr_t)in % sizeof(int64_t) == 0) {
        block->ids = (const int64_t *)(const void *)in;
        return;
    }
    CALL(widen_integers, in, block->rows, ids->size, ids->is_signed, block->id_buffer);
}

/* Returns a negative number if an id is above `last`, or below 0 where no rows are skipped. There
 * are fewer than 2^63 segments, so the difference of two ids does not overflow. */
INLINE int64_t any_bad(const int64_t *ids, size_t n, int64_t last, bool skips)
{
    int64_t any = 0, signs = skips ? 0 : -1;
    for (size_t i = 0; i < n; i++)
        any |= (ids[i] & signs) | (int64_t)((uint64_t)last - (uint64_t)ids[i]);
    return any;
}

ALSO_FOR_AVX2(int64_t, any_bad, (const int64_t *ids, size_t n, int64_t last, bool skips),
              (ids, n, last, skips))

size_t gr_first_bad(const gr_host_segments *job, const gr_segment_block *block)
{
    int64_t last = (int64_t)job->request->sums.segments - 1;
    bool skips = job->request->ids.skips;
    if (CALL(any_bad, block->ids, block->rows, last, skips) >= 0)
        return block->rows;
    size_t first = 0; /* other threads may have changed the id since */
    while (first < block->rows && (skips || block->ids[first] >= 0) && block->ids[first] <= last)
        first++;
    return first;
}

INLINE int64_t any_fall(const int64_t *ids, size_t n)
{
    int64_t any = 0;
    for (size_t i = 1; i < n; i++)
        any |= ids[i] < ids[i - 1];
    return any;
}

ALSO_FOR_AVX2(int64_t, any_fall, (const int64_t *ids, size_t n), (ids, n))

bool gr_ids_fall(const gr_segment_block *block)
{
    return CALL(any_fall, block->ids, block->rows);
}
