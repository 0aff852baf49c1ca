/* Block sums in, one sum out: added pairwise, in a tree that depends on nothing but their number.
 *
 * The stack holds one sum for each bit set in `count`, the sum of that many leaves; a new leaf is
 * carried through it as in a binary counter. It is the tree of the next power of two with zeros for
 * the leaves that are missing, so that a run of 2^k leaves may be summed apart (another thread's
 * task) and pushed as one: same tree, same bits. */
#ifndef GPUREDUCE_CPU_TREE_H
#define GPUREDUCE_CPU_TREE_H

#include <stddef.h>

/* The sums of the elements at even and at odd indexes: a complex number, or a real one's halves. */
typedef double gr_pair __attribute__((vector_size(16)));

typedef struct {
    size_t count;
    gr_pair *top; /* the next free place */
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

#endif
