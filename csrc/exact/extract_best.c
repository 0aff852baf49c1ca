/* Chooses the fastest table for this processor. */
#include "exact/extract.h"

#include "cpu/cpu_sum.h"

#include <stdatomic.h>
#include <string.h>

static const gr_extract_kernels *named(const char *instructions)
{
#ifdef __x86_64__
    if (strcmp(instructions, "avx512") == 0)
        return &gr_extract_avx512;
    if (strcmp(instructions, "avx512_halves") == 0)
        return &gr_extract_avx512_halves;
    if (strcmp(instructions, "avx2") == 0)
        return &gr_extract_avx2;
#else
    (void)instructions;
#endif
    return &gr_extract_baseline;
}

/* The choice is cached, because comparing names takes as long as adding up some elements. */
const gr_extract_kernels *gr_extract_best(void)
{
    static _Atomic(const gr_extract_kernels *) best; /* all threads choose the same table */
    const gr_extract_kernels *table = atomic_load_explicit(&best, memory_order_relaxed);
    if (!table) {
        table = named(gr_cpu_instructions());
        atomic_store_explicit(&best, table, memory_order_relaxed);
    }
    return table;
}
