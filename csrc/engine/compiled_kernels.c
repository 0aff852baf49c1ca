#include "engine/compiled_kernels.h"

#include "shared/registry.h"

#include <stdlib.h>

/* A function per strategy, which lists its kernels; NULL for strategies without any in this build.
 */
#define STRATEGY(name, kind, traits, capability, dtypes, aliases, lesson)                          \
    __attribute__((weak, visibility("hidden"))) void gr_kernels_##name(gr_kernel_list *list);
#include "strategies.def"
#include "steps.def"
#undef STRATEGY

static void (*const fill[])(gr_kernel_list *list) = {
#define STRATEGY(name, kind, traits, capability, dtypes, aliases, lesson) gr_kernels_##name,
#include "strategies.def"
#include "steps.def"
#undef STRATEGY
};

enum { STRATEGIES = sizeof fill / sizeof fill[0] };

static gr_kernel_list lists[STRATEGIES];
static gr_kernel_list *added[GR_MAX_ADDED_STRATEGIES]; /* NULL: none yet */

static gr_kernel_list *list_of(int strategy)
{
    return strategy < STRATEGIES ? &lists[strategy]
                                 : __atomic_load_n(&added[strategy - STRATEGIES], __ATOMIC_ACQUIRE);
}

bool gr_list_kernels(void)
{
    bool complete = true;
    for (int i = 0; i < STRATEGIES; i++) {
        gr_kernel_list *list = &lists[i];
        if (fill[i] && !list->count)
            fill[i](list);
        for (int k = 0; k < list->count; k++)
            complete &= list->kernel[k].entry != NULL;
    }
    return complete;
}

static gr_kernel_list *make_list(int strategy)
{
    gr_kernel_list *list = list_of(strategy);
    if (!list) {
        list = calloc(1, sizeof *list);
        __atomic_store_n(&added[strategy - STRATEGIES], list, __ATOMIC_RELEASE);
    }
    return list;
}

bool gr_add_kernels(int strategy, void (*fill_more)(gr_kernel_list *list))
{
    gr_kernel_list *list = make_list(strategy);
    bool complete = list != NULL;
    if (list)
        fill_more(list);
    for (int k = 0; list && k < list->count; k++)
        complete &= list->kernel[k].entry != NULL;
    return complete;
}

bool gr_add_kernel(int strategy, const gr_kernel *kernel)
{
    gr_kernel_list *list = make_list(strategy);
    if (!list || list->count == GR_MAX_KERNELS)
        return false;
    list->kernel[list->count] = *kernel;
    __atomic_store_n(&list->count, list->count + 1, __ATOMIC_RELEASE);
    return true;
}

bool gr_has_kernels(int strategy)
{
    const gr_kernel_list *list = list_of(strategy);
    return list && list->count > 0;
}

/* Returns the largest power of two that is not above `block`. */
static unsigned template_block(unsigned block)
{
    unsigned power = GR_MIN_BLOCK;
    while (2 * power <= block)
        power *= 2;
    return power;
}

gr_kernel *gr_find_kernel(int strategy, gr_load load, gr_acc acc, unsigned block)
{
    unsigned wanted = gr_strategy_at(strategy)->traits & BLOCK_TEMPLATE ? template_block(block) : 0;
    if (wanted && gr_is_added_strategy(strategy)) /* a user's kernel may need exactly this block */
        wanted = block;
    gr_kernel_list *list = list_of(strategy);
    if (!list)
        return NULL;
    int count = __atomic_load_n(&list->count, __ATOMIC_ACQUIRE);
    int last = __atomic_load_n(&list->last, __ATOMIC_RELAXED);
    for (int tried = 0, i = last; tried < count; tried++) {
        gr_kernel *kernel = &list->kernel[i];
        if (kernel->load == load && kernel->acc == acc && kernel->block == wanted) {
            if (i != last)
                __atomic_store_n(&list->last, i, __ATOMIC_RELAXED);
            return kernel;
        }
        i = i + 1 < count ? i + 1 : 0;
    }
    return NULL;
}
