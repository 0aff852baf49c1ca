/* `fast`: tables that choose kernel, block and grid by the size of the input. Also chooses block
 * and grid of `exact`. */
#include "exact/device_layout.h"
#include "engine/launch.h"
#include "threads/forks.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_DEVICES = 64, MAX_BLOCKS_PER_SM = 1024, MAX_GRID = INT_MAX };

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* The default table, for devices without a table of their own: an H200's table (gpureduce/tables),
 * coarsened, with kernels for devices without clusters and bulk copies added. If a device cannot
 * run a row's strategy, the next row that fits applies. */
static const struct {
    size_t max_bytes;
    unsigned element_bytes;
    const char *strategy;
    unsigned block, blocks_per_sm;
} named[] = {
    {KIB(8), 0, "one_block", 128, 0},
    /* One-byte elements need more additions per load, hence more multiprocessors, and bulk_copy. */
    {KIB(32), 1, "one_cluster", 128, 0},
    {KIB(512), 1, "tiles", 128, 1},
    {MIB(2), 1, "tiles", 256, 1},
    {SIZE_MAX, 1, "bulk_copy", 512, 1},
    {KIB(32), 0, "one_block", 256, 0},
    {KIB(128), 0, "one_cluster", 128, 0},
    {KIB(384), 0, "one_cluster", 512, 0},
    {MIB(2), 0, "tiles", 256, 1},
    {MIB(8), 0, "tiles", 512, 1},
    {MIB(128), 0, "tiles", 1024, 1},
    {SIZE_MAX, 0, "bulk_copy", 512, 1},
    {SIZE_MAX, 0, "tiles", 512, 2},
};
enum { DEFAULTS = sizeof named / sizeof named[0] };

static gr_choice defaults[DEFAULTS];
static int last_block;

/* Runs when the module is loaded, so that no fork() can happen in the middle of it. */
__attribute__((constructor)) static void set_defaults(void)
{
    for (int i = 0; i < DEFAULTS; i++)
        defaults[i] = (gr_choice){
            .max_bytes = named[i].max_bytes,
            .element_bytes = named[i].element_bytes,
            .strategy = gr_strategy_named(named[i].strategy),
            .block = named[i].block,
            .blocks_per_sm = named[i].blocks_per_sm,
        };
    last_block = gr_strategy_named("last_block");
}

/* The tables that gr_set_choices() has set. No rows: the defaults. `lock` guards them. */
static struct {
    int count;
    gr_choice row[GR_MAX_CHOICES];
} tuned[MAX_DEVICES];
GR_FILE_LOCK

GR_AROUND_FORK(take_lock, give_lock_back, give_lock_back)

/* Returns the rows of a device. The caller holds the lock. */
static const gr_choice *rows_of(int device, int *count)
{
    int set = device >= 0 && device < MAX_DEVICES ? tuned[device].count : 0;
    *count = set ? set : DEFAULTS;
    return set ? tuned[device].row : defaults;
}

/* Describes the error in a row, or returns NULL. gpureduce/core/fast_table.py checks more, and
 * names the field. */
static const char *fault_of(const gr_choice *row)
{
    if (row->strategy < 0 || row->strategy >= gr_strategy_count() ||
        gr_strategy_at(row->strategy)->kind != GR_KIND_KERNEL)
        return "names no kernel";
    if (row->block < GR_MIN_BLOCK || row->block > GR_MAX_BLOCK || row->block % GR_WARP)
        return "has a block that is not a multiple of 32 from 32 to 1024";
    if (row->element_bytes > 8 || (row->element_bytes & (row->element_bytes - 1)))
        return "has element_bytes other than 0, 1, 2, 4 and 8";
    if (row->grid > MAX_GRID)
        return "has a grid above 2147483647";
    if (row->blocks_per_sm > MAX_BLOCKS_PER_SM)
        return "has more than 1024 blocks_per_sm";
    return NULL;
}

gr_status gr_set_choices(int device, const gr_choice *rows, int count, gr_error *error)
{
    if (device < 0 || device >= MAX_DEVICES || count < 0 || count > GR_MAX_CHOICES)
        return gr_fail(error, GR_BAD_VALUE, "a table has at most %d rows, a device at most %d",
                       GR_MAX_CHOICES, MAX_DEVICES);
    for (int i = 0; i < count; i++)
        if (fault_of(&rows[i]))
            return gr_fail(error, GR_BAD_VALUE, "row %d of the table %s", i, fault_of(&rows[i]));
    take_lock();
    tuned[device].count = count;
    memcpy(tuned[device].row, rows, (size_t)count * sizeof *rows);
    give_lock_back();
    return error->status = GR_OK;
}

int gr_get_choices(int device, gr_choice rows[GR_MAX_CHOICES])
{
    int count;
    take_lock();
    const gr_choice *found = rows_of(device, &count);
    memcpy(rows, found, (size_t)count * sizeof *rows);
    give_lock_back();
    return count;
}

/* Copies the first row that fits. Returns false if there is none. */
static bool find_row(int device, size_t bytes, size_t element, int capability, gr_choice *found)
{
    int count, i = 0;
    take_lock();
    const gr_choice *row = rows_of(device, &count);
    while (i < count &&
           (bytes > row[i].max_bytes || (row[i].element_bytes && row[i].element_bytes != element) ||
            gr_strategy_at(row[i].strategy)->capability > capability))
        i++;
    if (i < count)
        *found = row[i];
    give_lock_back();
    return i < count;
}

void gr_choose(gr_request *request)
{
    size_t element = gr_load_size(request->load), bytes = request->n * element;
    const gr_facts *facts = gr_facts_of(request->device);
    gr_choice row;

    if (gr_view_of(request) ||
        !find_row(request->device, bytes, element, facts->capability, &row)) {
        request->strategy = last_block;
        return;
    }
    size_t most = (size_t)row.blocks_per_sm * facts->sms;
    /* More blocks would have threads without a single 16-byte load. */
    size_t useful = bytes / ((size_t)row.block * 16) + 1;
    request->strategy = row.strategy;
    request->block = row.block;
    request->grid = most ? (unsigned)gr_least(most, useful) : row.grid;
}

/* Threads per block and blocks per multiprocessor, for inputs up to `max_bytes`: the fastest of
 * those that were tried on an H200 when the kernels were written (times:
 * notebooks/data/exact_h200.json). Each thread adds to the time at the end of its block, and each
 * block adds to all digits. Large arrays need as many loads in flight as possible. */
static const struct {
    gr_load load;
    size_t max_bytes;
    unsigned block, blocks_per_sm;
} exact_shapes[] = {
    {GR_LOAD_f32, (size_t)2 << 10, 128, 1},  {GR_LOAD_f32, (size_t)9 << 19, 256, 1},
    {GR_LOAD_f32, (size_t)14 << 20, 384, 1}, {GR_LOAD_f32, (size_t)20 << 20, 512, 1},
    {GR_LOAD_f32, (size_t)80 << 20, 640, 1}, {GR_LOAD_f32, (size_t)768 << 20, 896, 1},
    {GR_LOAD_f32, SIZE_MAX, 1024, 1},        {GR_LOAD_f16, (size_t)2 << 20, 256, 1},
    {GR_LOAD_f16, (size_t)24 << 20, 256, 2}, {GR_LOAD_f16, (size_t)48 << 20, 512, 2},
    {GR_LOAD_f16, SIZE_MAX, 1024, 1},        {GR_LOAD_bf16, (size_t)24 << 10, 128, 1},
    {GR_LOAD_bf16, (size_t)8 << 20, 256, 1}, {GR_LOAD_bf16, (size_t)20 << 20, 256, 2},
    {GR_LOAD_bf16, SIZE_MAX, 512, 1},        {GR_LOAD_any, (size_t)2 << 20, 128, 1},
    {GR_LOAD_any, (size_t)29 << 20, 224, 1}, {GR_LOAD_any, (size_t)40 << 20, 256, 1},
    {GR_LOAD_any, (size_t)56 << 20, 352, 1}, {GR_LOAD_any, (size_t)72 << 20, 256, 1},
    {GR_LOAD_any, SIZE_MAX, 352, 1},
};

void gr_shape_exact(gr_request *request)
{
    enum { BYTES_PER_BLOCK = 16 << 10 };
    gr_load load = request->load == GR_LOAD_f64 ? GR_LOAD_any : request->load;
    size_t bytes = request->n * gr_load_size(request->load);
    const gr_facts *facts = gr_facts_of(request->device);
    unsigned row = 0;

    if (!(gr_strategy_at(request->strategy)->traits & DIGITS) || request->block)
        return;
    while (exact_shapes[row].load != load || bytes > exact_shapes[row].max_bytes)
        if (++row == sizeof exact_shapes / sizeof exact_shapes[0])
            return;
    request->block = exact_shapes[row].block;
    while (request->block > GR_WARP &&
           gr_exact_shared_words(load, request->block) * sizeof(gr_value) > facts->shared_bytes)
        request->block -= GR_WARP;
    size_t most = (size_t)exact_shapes[row].blocks_per_sm * facts->sms;
    size_t useful = bytes / BYTES_PER_BLOCK + 1;
    if (!request->grid)
        request->grid = (unsigned)gr_least(most, useful);
}
