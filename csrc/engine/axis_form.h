/* The form of an array that is added up along axes. For the files of the engine only. */
#pragma once

#include "engine/groups.h"
#include "engine/internal.h"

#include <stdbool.h>

typedef enum { AS_ROWS, AS_COLUMNS, AS_LAYOUT } gr_axis_form;

/* How kernels for rows and columns read the elements; -1 if they cannot. */
int gr_axis_load(const gr_groups_request *request);

size_t gr_axis_element_bytes(int load);

/* The size of an accumulator on the device. */
size_t gr_axis_acc_size(gr_acc acc);

/* The mean number of elements of a group. */
size_t gr_axis_usual_terms(const gr_axes *axes);

/* Whether sum k is stored at element k. */
bool gr_axis_is_packed(const gr_axes *axes, size_t bytes);

/* Sorts and merges dimensions. `parts`: 2 for complex numbers. */
void gr_axis_simplify(gr_axes *axes, unsigned parts);

/* Describes the array as a matrix, if it is one. Rows of one element, and a single column, can be
 * read as rows or as columns: the kernel of that name decides, if there is one. Without a name,
 * there may be gaps between the elements of rows and columns, and the elements of sums may lie in
 * several `pieces`: rows, or outer matrices. */
gr_axis_form gr_axis_find_matrix(const gr_groups_request *request, const gr_axes *axes,
                                 const gr_strategy *named, gr_matrix *m, size_t *pieces);

/* Describes the array as dimensions. */
gr_status gr_axis_describe_layout(const gr_groups_request *request, const gr_axes *axes,
                                  gr_layout *layout, gr_error *error);

bool gr_acc_is_proven(gr_acc acc);
