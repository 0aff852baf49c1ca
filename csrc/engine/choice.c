/* What `fast` is: which kernel, block and grid for how many bytes. And the block and grid of
 * `exact`.
 */
#include "engine/exact_layout.h"
#include "engine/launch.h"
#include "engine/reach.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEVICES = 64 };

/* A row holds for inputs up to max_bytes. Where a row's strategy cannot run (the card, the layout),
 * the next one that can is taken. */
typedef struct {
    int count;
    gr_choice row[GR_MAX_CHOICES];
} table;

/* For cards that nobody has tuned for: an H200's table (gpureduce/tables), coarsened, and what
 * cards without clusters and bulk copies take instead. */
static table defaults;
static pthread_once_t defaults_set = PTHREAD_ONCE_INIT;
static table *tuned[MAX_DEVICES]; /* NULL: the defaults */

static int strategy_index(const char *name)
{
    for (int i = 0; i < gr_strategy_count(); i++)
        if (!strcmp(gr_strategy_at(i)->name, name))
            return i;
    return -1;
}

static const size_t KIB = 1024, MIB = 1024 * 1024;

static void add(size_t max_bytes, unsigned element_bytes, const char *name, unsigned block,
                unsigned blocks_per_sm)
{
    gr_choice *row = &defaults.row[defaults.count++];
    row->max_bytes = max_bytes;
    row->element_bytes = element_bytes;
    row->strategy = strategy_index(name);
    row->block = block;
    row->blocks_per_sm = blocks_per_sm;
}

static void set_defaults(void)
{
    add(8 * KIB, 0, "one_block", 128, 0);
    /* Bytes cost more additions per load: they want more multiprocessors, and the ring. */
    add(32 * KIB, 1, "one_cluster", 128, 0);
    add(512 * KIB, 1, "tiles", 128, 1);
    add(2 * MIB, 1, "tiles", 256, 1);
    add(SIZE_MAX, 1, "bulk_copy", 512, 1);
    add(32 * KIB, 0, "one_block", 256, 0);
    add(128 * KIB, 0, "one_cluster", 128, 0);
    add(384 * KIB, 0, "one_cluster", 512, 0);
    add(2 * MIB, 0, "tiles", 256, 1);
    add(8 * MIB, 0, "tiles", 512, 1);
    add(128 * MIB, 0, "tiles", 1024, 1);
    add(SIZE_MAX, 0, "bulk_copy", 512, 1);
    add(SIZE_MAX, 0, "tiles", 512, 2);
}

gr_status gr_set_choices(int device, const gr_choice *rows, int count, gr_error *error)
{
    table *made = NULL;
    if (device < 0 || device >= MAX_DEVICES || count < 0 || count > GR_MAX_CHOICES)
        return gr_fail(error, GR_BAD_VALUE, "a table has at most %d rows, a device at most %d",
                       GR_MAX_CHOICES, MAX_DEVICES);
    for (int i = 0; i < count; i++)
        if (rows[i].strategy < 0 || rows[i].strategy >= gr_strategy_count() ||
            gr_strategy_at(rows[i].strategy)->kind != GR_KIND_KERNEL)
            return gr_fail(error, GR_BAD_VALUE, "row %d of the table names no kernel", i);
    if (count && !(made = calloc(1, sizeof *made)))
        return gr_fail(error, GR_NO_MEMORY, "no host memory for a table");
    if (made) {
        made->count = count;
        memcpy(made->row, rows, (size_t)count * sizeof *rows);
    }
    __atomic_store_n(&tuned[device], made, __ATOMIC_RELEASE);
    return error->status = GR_OK;
}

static const table *table_of(int device)
{
    pthread_once(&defaults_set, set_defaults);
    const table *found = device >= 0 && device < MAX_DEVICES
                             ? __atomic_load_n(&tuned[device], __ATOMIC_ACQUIRE)
                             : NULL;
    return found ? found : &defaults;
}

int gr_get_choices(int device, gr_choice rows[GR_MAX_CHOICES])
{
    const table *found = table_of(device);
    memcpy(rows, found->row, (size_t)found->count * sizeof *rows);
    return found->count;
}

/* Where kernels read host memory themselves, unless they are timed: the bits are the same. They
 * wait for the bus then, and do not get it sooner by more threads; more blocks than pieces only
 * look for their marks more often. Smaller arrays are brought sooner than threads can help; there
 * the table holds. */
static int reads_over_bus(const gr_request *request, size_t bytes)
{
    return !request->on_device && bytes >= 64 * KIB && bytes <= GR_REACH_BYTES;
}

void gr_choose(gr_request *request)
{
    size_t element = gr_load_size(request->load), bytes = request->n * element;
    const gr_facts *facts = gr_facts_of(request->device);
    const table *rows = table_of(request->device);

    if (gr_view_of(request)) {
        request->strategy = strategy_index("last_block");
        return;
    }
    if (reads_over_bus(request, bytes)) {
        request->strategy = strategy_index("tiles");
        request->block = 256;
        request->grid = (unsigned)gr_least(facts->sms, (bytes - 1) / GR_PIECE_BYTES + 1);
        return;
    }
    for (int i = 0; i < rows->count; i++) {
        const gr_choice *row = &rows->row[i];
        if (bytes > row->max_bytes || (row->element_bytes && row->element_bytes != element) ||
            gr_strategy_at(row->strategy)->capability > facts->capability)
            continue;
        size_t most = (size_t)row->blocks_per_sm * facts->sms;
        /* No block without at least one 16-byte load for each of its threads. */
        size_t useful = bytes / ((size_t)row->block * 16) + 1;
        request->strategy = row->strategy;
        request->block = row->block;
        request->grid = most ? (unsigned)gr_least(most, useful) : row->grid;
        return;
    }
    request->strategy = strategy_index("last_block");
}

/* Threads per block, and blocks per multiprocessor, up to so many bytes: quickest on an H200 of
 * those that were tried when the kernels were written (notebooks/data/exact_h200.json has how
 * quick). Each thread of a block costs time at the end, and each block an addition to all digits;
 * large arrays want all the memory that there is to be on its way. */
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
    int over_bus = reads_over_bus(request, bytes) && !request->timed;
    size_t per_sm = over_bus ? 1 : exact_shapes[row].blocks_per_sm;
    size_t most = per_sm * facts->sms;
    size_t useful = bytes / BYTES_PER_BLOCK + 1;
    if (!request->grid)
        request->grid = (unsigned)gr_least(most, useful);
}
