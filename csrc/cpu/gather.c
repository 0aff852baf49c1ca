#include "cpu/gather.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE void copy_spaced(unsigned char *to, const gr_spaced *from, size_t n, size_t size)
{
    const unsigned char *in = from->in;
    ptrdiff_t step = from->in_step;
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * size, in + (ptrdiff_t)i * step, size);
}

/* Reads masked elements too, and then replaces them by 0: this is faster than a branch. */
INLINE void copy_masked(unsigned char *to, const gr_spaced *from, size_t n, size_t size)
{
    const unsigned char *in = from->in, *mask = from->mask;
    ptrdiff_t step = from->in_step, mask_step = from->mask_step;
    for (size_t i = 0; i < n; i++) {
        uint64_t bits[2] = {0, 0};
        memcpy(bits, in + (ptrdiff_t)i * step, size);
        uint64_t keep = mask[(ptrdiff_t)i * mask_step] ? UINT64_MAX : 0;
        bits[0] &= keep;
        bits[1] &= keep;
        memcpy(to + i * size, bits, size);
    }
}

#define FOR_SIZE(function, size, ...)                                                              \
    switch (size) {                                                                                \
    case 1: function(__VA_ARGS__, 1); break;                                                       \
    case 2: function(__VA_ARGS__, 2); break;                                                       \
    case 4: function(__VA_ARGS__, 4); break;                                                       \
    case 8: function(__VA_ARGS__, 8); break;                                                       \
    default: function(__VA_ARGS__, 16); break;                                                     \
    }

#define SWAP(bits, alone)                                                                          \
    case bits / 8:                                                                                 \
        _Pragma("GCC unroll 8") for (size_t i = 0; i < n; i++)                                     \
        {                                                                                          \
            uint##bits##_t x;                                                                      \
            memcpy(&x, data + i * sizeof x, sizeof x);                                             \
            x = __builtin_bswap##bits(x);                                                          \
            alone;                                                                                 \
            memcpy(data + i * sizeof x, &x, sizeof x);                                             \
        }                                                                                          \
        break;

/* Keeps the compiler from vectorizing swaps: SSE2 swaps wider elements faster one by one. */
#define ALONE __asm__("" : "+r"(x))

static void swap_bytes(unsigned char *data, size_t n, size_t size)
{
    switch (size) {
        SWAP(16, )
        SWAP(32, ALONE)
        SWAP(64, ALONE)
    default: break;
    }
}

void gr_gather(unsigned char *to, const gr_spaced *from, size_t n)
{
    if (from->mask)
        FOR_SIZE(copy_masked, from->size, to, from, n)
    else if (from->in_step == (ptrdiff_t)from->size)
        memcpy(to, from->in, n * from->size);
    else
        FOR_SIZE(copy_spaced, from->size, to, from, n)
    if (from->swapped)
        swap_bytes(to, n * (size_t)from->parts, from->size / (size_t)from->parts);
}

gr_spaced gr_spaced_of(const gr_axes *axes, const gr_axis *dim, const unsigned char *in,
                       const unsigned char *mask)
{
    return (gr_spaced){.in = in,
                       .mask = mask,
                       .in_step = dim->in,
                       .mask_step = dim->mask,
                       .size = gr_load_size(axes->load) * (size_t)axes->components,
                       .parts = axes->components,
                       .swapped = axes->swapped};
}

const gr_axis *gr_axis_inner(const gr_axis_list *list)
{
    static const gr_axis one = {1, 0, 0, 0};
    return list->count ? &list->dim[list->count - 1] : &one;
}

void gr_gather_row(unsigned char *to, const gr_axes *axes, const unsigned char *in,
                   const unsigned char *mask, size_t first, size_t n)
{
    const gr_axis_list *list = &axes->reduced;
    const gr_axis *inner = gr_axis_inner(list);
    gr_spaced from = gr_spaced_of(axes, inner, in, mask);
    size_t skip = first % inner->size;
    gr_axes_place place;
    gr_axes_go(&place, list, list->count - (list->count > 0), first / inner->size);
    while (n > 0) {
        size_t run = inner->size - skip < n ? inner->size - skip : n;
        from.in = in + place.in + (ptrdiff_t)skip * inner->in;
        from.mask = mask ? mask + place.mask + (ptrdiff_t)skip * inner->mask : NULL;
        gr_gather(to, &from, run);
        to += run * from.size;
        n -= run;
        skip = 0;
        gr_axes_next(&place);
    }
}
