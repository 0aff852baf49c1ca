/* Splits a sum into tasks and adds up their sums. */
#include "cpu/cpu_sum.h"

#include "cpu/floating_point_mode.h"
#include "threads/interrupts.h"
#include "threads/pool.h"
#include "cpu/instruction_set.h"
#include "cpu/kernels.h"
#include "cpu/partial_sums.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Powers of two of blocks, so that a task is a subtree, and of pages, so that no two tasks
     * share a page if the array starts at a page boundary. */
    LEAST_TASK_BYTES = 1 << 15,
    MOST_TASK_BYTES = 1 << 17,
    TASKS = 64, /* at most, as long as tasks do not exceed MOST_TASK_BYTES */
    MOST_TASKS = 512,
    /* Below this, the thread pool costs more than it saves: some microseconds if its threads are
     * awake. One thread adds 512 KiB in the cache in 10 microseconds, or in twice that for 16-bit
     * floats. */
    THREADS_FROM_BYTES = 1 << 19
};

typedef struct {
    const unsigned char *data;
    size_t n, task_n, size;
    gr_load load;
    gr_float_rows_kernel *floats;
    gr_integer_rows_kernel *integers;
    gr_partial_sum *sums;
} sum_job;

GR_CHOOSE_TABLE(gr_cpu_best, gr_cpu_kernels, gr_cpu_baseline, gr_cpu_avx2, gr_cpu_avx512,
                gr_cpu_avx512)

static bool finite_pair(gr_pair x)
{
    return isfinite(x[0]) && isfinite(x[1]);
}

/* Separate functions, so that no compiler fuses the product with an addition. */
__attribute__((noinline)) gr_pair gr_scale_pair(gr_pair sum, double factor)
{
    return sum * factor;
}

static __attribute__((noinline)) void scale_block(const unsigned char *in, size_t n, double *out)
{
    memcpy(out, in, n * sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] *= GR_SCALE_DOWN;
}

static gr_pair scaled_sum(const unsigned char *in, size_t n, gr_float_rows_kernel *kernel)
{
    double block[GR_CPU_BLOCK];
    gr_pair sum;
    gr_tree tree;
    gr_tree_start(&tree);
    while (n > 0) {
        size_t leaf = n < GR_CPU_BLOCK ? n : GR_CPU_BLOCK;
        scale_block(in, leaf, block);
        kernel(block, 0, leaf, 1, &sum);
        gr_tree_push(&tree, sum);
        in += leaf * sizeof *block;
        n -= leaf;
    }
    return gr_tree_total(&tree);
}

static void run_task(size_t task, void *context)
{
    const sum_job *job = context;
    size_t first = task * job->task_n;
    size_t n = job->n - first < job->task_n ? job->n - first : job->task_n;
    const unsigned char *in = job->data + first * job->size;
    gr_partial_sum *sum = job->sums + task;
    if (job->integers) {
        job->integers(in, 0, n, 1, &sum->integer);
        return;
    }
    /* The floating-point mode is per thread, and another mode would change the sum. */
    gr_arithmetic before = gr_begin_plain();
    job->floats(in, 0, n, 1, &sum->pair);
    sum->scaled = job->load == GR_LOAD_f64 && !finite_pair(sum->pair);
    if (sum->scaled)
        sum->pair = scaled_sum(in, n, job->floats);
    gr_end_plain(before);
}

static gr_pair add_partial_sums(const gr_partial_sum *sums, size_t count, int components)
{
    gr_tree tree;
    gr_tree_start(&tree);
    for (size_t i = 0; i < count; i++)
        gr_tree_push(&tree, sums[i].pair);
    gr_pair sum = gr_tree_total(&tree);
    return components == 1 ? (gr_pair){sum[0] + sum[1], 0} : sum;
}

gr_pair gr_total_of(gr_partial_sum *sums, size_t count, gr_load load, int components)
{
    bool scaled = false;
    for (size_t i = 0; i < count; i++)
        scaled |= sums[i].scaled;
    if (!scaled) {
        gr_pair sum = add_partial_sums(sums, count, components);
        if (finite_pair(sum) || load != GR_LOAD_f64)
            return sum;
    }
    for (size_t i = 0; i < count; i++)
        if (!sums[i].scaled)
            sums[i].pair = gr_scale_pair(sums[i].pair, GR_SCALE_DOWN);
    return gr_scale_pair(add_partial_sums(sums, count, components), GR_SCALE_UP);
}

static void store_float(double sum, gr_acc acc, gr_value *out)
{
    if (isnan(sum))
        sum = NAN;
    if (acc == GR_ACC_f32)
        out->f32 = (float)sum;
    else
        out->f64 = sum;
}

static void run_tasks(sum_job *job, gr_acc acc, int components, int threads, gr_value out[2])
{
    size_t tasks = (job->n - 1) / job->task_n + 1;
    gr_parallel(threads, tasks, run_task, job);
    if (gr_interrupted()) /* some tasks have not stored a sum */
        return;
    if (job->integers) {
        for (size_t i = 0; i < tasks; i++)
            out->u64 += job->sums[i].integer; /* a sum in 32 bits is its low half */
        return;
    }
    gr_arithmetic before = gr_begin_plain();
    gr_pair sum = gr_total_of(job->sums, tasks, job->load, components);
    for (int i = 0; i < components; i++)
        store_float(sum[i], acc, &out[i]);
    gr_end_plain(before);
}

/* Depends only on n and the type: if partial sums overflow, the task size affects the result. */
static size_t task_size(size_t bytes)
{
    size_t task = LEAST_TASK_BYTES;
    while ((task < MOST_TASK_BYTES && task * TASKS < bytes) || (bytes - 1) / task >= MOST_TASKS)
        task *= 2;
    return task;
}

/* Not inlined, to keep its large stack frame out of small sums. */
static __attribute__((noinline)) void sum_large(sum_job *job, gr_acc acc, int components,
                                                int threads, gr_value out[2])
{
    gr_partial_sum sums[MOST_TASKS];
    job->sums = sums;
    job->task_n = task_size(job->n * job->size) / job->size;
    run_tasks(job, acc, components, threads, out);
}

void gr_cpu_sum(const void *data, size_t n, gr_load load, gr_acc acc, int components, int threads,
                gr_value out[2])
{
    memset(out, 0, 2 * sizeof *out);
    if (n == 0)
        return;
    sum_job job = {.data = data,
                   .n = n * (size_t)components,
                   .size = gr_load_size(load),
                   .load = load,
                   .floats = gr_cpu_best()->float_rows[load],
                   .integers = gr_cpu_best()->integer_rows[load]};
    size_t slow = load == GR_LOAD_f16 || load == GR_LOAD_bf16 ? 2 : 1;
    if (job.n >= THREADS_FROM_BYTES / slow / job.size) {
        sum_large(&job, acc, components, threads, out);
        return;
    }
    gr_partial_sum sum;
    job.sums = &sum;
    job.task_n = job.n;
    run_tasks(&job, acc, components, 1, out);
}

static int ceil_log2(size_t n)
{
    int log = 0;
    while (log < 63 && ((size_t)1 << log) < n)
        log++;
    return log;
}

double gr_cpu_error_factor(size_t n, gr_load load, gr_acc acc)
{
    (void)load; /* all floats are added in float64 */
    if (acc == GR_ACC_u32 || acc == GR_ACC_u64 || n == 0)
        return 0;
    size_t block = n < GR_CPU_BLOCK ? n : GR_CPU_BLOCK;
    size_t rows = (block - 1) / GR_CPU_LANES + 1, blocks = (n - 1) / GR_CPU_BLOCK + 1;
    int fold = ceil_log2(n) < 5 ? ceil_log2(n) : 5;
    double depth = (double)(rows - 1) + fold + ceil_log2(blocks);
    double u = DBL_EPSILON / 2, factor = depth * u / (1 - depth * u);
    if (acc == GR_ACC_f32)
        factor = FLT_EPSILON / 2 + (1 + FLT_EPSILON / 2) * factor;
    return factor * (1 + 8 * DBL_EPSILON); /* covers the roundings in this function */
}
