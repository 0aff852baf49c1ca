/* Compiled by setup.py for every strategy, with
 *   KERNEL         the kernel's name,        KERNEL_FILE   its file,
 *   PAIRS          GR_PAIRS_ALL, GR_PAIRS_ANY, GR_PAIRS_INT32 or GR_PAIRS_COMPLEX,
 *   BLOCKS         1 if the block size is a template parameter,
 *   VIEWS          the accumulators to compile it for with strided arrays, or GR_VIEWS_NONE,
 *   MATRIX         1 if it sums along an axis or by segment; then it is also compiled for sums that
 *                  prove their rounding, unless VIEWS_ONLY is 1,
 *   MOMENTS        1 if it is also compiled for sums of x and x^2,
 *   HAS_SHARES     1 if it adds up sums of shares,
 *   SAMPLES        1 to compile it also for the samples of a function,
 * and lists the kernel for every pair of element and accumulator. So a kernel file contains only
 * its kernel. To compile kernels together, setup.py writes a source that defines the macros and
 * includes this file for one kernel after another. */
#include "device.h"
#include "kernel_entry.h"
#include "engine/compiled_kernels.h"
#include "shared/cuda_types.h"

#include KERNEL_FILE
#include "kernels/parts/elements.h"
#include "kernels/parts/samples.h"

#if MATRIX
#include "kernels/parts/accumulate.h"
#endif

#ifndef GPUREDUCE_KERNEL_TABLE
#define GPUREDUCE_KERNEL_TABLE
static void add(gr_kernel_list *list, gr_load load, gr_acc acc, unsigned block, const void *entry)
{
    gr_kernel *kernel = &list->kernel[list->count++];
    kernel->load = load;
    kernel->acc = acc;
    kernel->block = block;
    kernel->entry = entry;
}

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TABLE(name) JOIN(gr_kernels_, name)
#endif

extern "C" void TABLE(KERNEL)(gr_kernel_list *list)
{
#if MATRIX
#define X(load, acc)                                                                               \
    add(list, GR_LOAD_##load, GR_ACC_##acc, 0, kernel_entry(KERNEL<type_##load, type_##acc>));
#elif BLOCKS
#define ADD(load, acc, block)                                                                      \
    add(list, GR_LOAD_##load, GR_ACC_##acc, block,                                                 \
        kernel_entry(KERNEL<const type_##load *, type_##acc, block>));
#define X(load, acc)                                                                               \
    ADD(load, acc, 32)                                                                             \
    ADD(load, acc, 64)                                                                             \
    ADD(load, acc, 128) ADD(load, acc, 256) ADD(load, acc, 512) ADD(load, acc, 1024)
#else
#define X(load, acc)                                                                               \
    add(list, GR_LOAD_##load, GR_ACC_##acc, 0,                                                     \
        kernel_entry(KERNEL<const type_##load *, type_##acc>));
#endif
    PAIRS(X)
#if MATRIX && !VIEWS_ONLY
    GR_PAIRS_PROVEN(X)
#endif
#if MOMENTS
    GR_PAIRS_MOMENTS(X)
#endif
#if HAS_SHARES
    X(proven, proven)
    X(proven3, proven3)
    X(moments, moments)
#endif
#define ANY(acc)                                                                                   \
    add(list, GR_LOAD_any, GR_ACC_##acc, 0, kernel_entry(KERNEL<Elements<type_##acc>, type_##acc>));
    VIEWS(ANY)
#if SAMPLES && BLOCKS
#define OF_BLOCK(acc, block)                                                                       \
    add(list, GR_LOAD_samples, GR_ACC_##acc, block,                                                \
        kernel_entry(KERNEL<Samples<type_##acc>, type_##acc, block>));
#define OF_SAMPLES(acc)                                                                            \
    OF_BLOCK(acc, 32)                                                                              \
    OF_BLOCK(acc, 64)                                                                              \
    OF_BLOCK(acc, 128) OF_BLOCK(acc, 256) OF_BLOCK(acc, 512) OF_BLOCK(acc, 1024)
#elif SAMPLES
#define OF_SAMPLES(acc)                                                                            \
    add(list, GR_LOAD_samples, GR_ACC_##acc, 0,                                                    \
        kernel_entry(KERNEL<Samples<type_##acc>, type_##acc>));
#endif
#if SAMPLES
    OF_SAMPLES(f32) OF_SAMPLES(f64)
#endif
}

/* For the next kernel. */
#undef X
#undef ADD
#undef ANY
#undef OF_BLOCK
#undef OF_SAMPLES
#undef KERNEL
#undef KERNEL_FILE
#undef PAIRS
#undef BLOCKS
#undef VIEWS
#undef MATRIX
#undef MOMENTS
#undef HAS_SHARES
#undef VIEWS_ONLY
#undef SAMPLES
