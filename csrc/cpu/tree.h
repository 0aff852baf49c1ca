/* Adds block sums pairwise, in a tree whose shape depends only on their number.
 *
 * The stack holds one sum for each bit set in `count`, the sum of that many leaves. A new leaf is
 * carried through it as in a binary counter. The tree is that of the next power of two, with zeros
 * for the missing leaves. So a run of 2^k leaves may be summed separately (in another thread's
 * task) and pushed as one: the tree is the same, and so are the bits. */
#pragma once

#include <stddef.h>

/* Sums of the elements at even and at odd indexes: a complex number, or two halves of a real sum.
 */
typedef double gr_pair __attribute__((vector_size(16)));

typedef struct {
    size_t count;
    gr_pair *top; /* the next free entry of the stack */
    gr_pair stack[64];
} gr_tree;

static inline void gr_tree_start(gr_tree *tree)
{
    tree->count = 0;
    tree->top = tree->stack;
}

static inline void gr_tree_push(gr_tree *tree, gr_pair sum)
{
    for (size_t carry = tree->count++; carry & 1; carry >>= 1)
        sum = *--tree->top + sum;
    *tree->top++ = sum;
}

static inline gr_pair gr_tree_total(const gr_tree *tree)
{
    gr_pair sum = {0, 0};
    for (const gr_pair *next = tree->top; next > tree->stack;)
        sum = *--next + sum;
    return sum;
}
