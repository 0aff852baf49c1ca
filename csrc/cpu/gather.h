/* Copies elements to contiguous memory in native byte order. */
#pragma once

#include "shared/axes.h"

/* Elements at equal distances. `size` is that of an element, `parts` the number of its parts: the
 * bytes of each part are reversed if `swapped`. Elements whose byte in the mask is 0 are copied as
 * zeros; a null mask takes all. */
typedef struct {
    const unsigned char *in, *mask;
    ptrdiff_t in_step, mask_step;
    size_t size;
    int parts;
    bool swapped;
} gr_spaced;

/* The fastest-varying dimension; one of size 1 if there is none. */
const gr_axis *gr_axis_inner(const gr_axis_list *list);

/* The elements along a dimension. `mask` is that of the first of them, or NULL. */
gr_spaced gr_spaced_of(const gr_axes *axes, const gr_axis *dim, const unsigned char *in,
                       const unsigned char *mask);

void gr_gather(unsigned char *to, const gr_spaced *from, size_t n);

/* Copies n elements of one sum, from the index `first` on. `in` and `mask` are those of the sum's
 * first element. Complex elements are copied whole. */
void gr_gather_row(unsigned char *to, const gr_axes *axes, const unsigned char *in,
                   const unsigned char *mask, size_t first, size_t n);
