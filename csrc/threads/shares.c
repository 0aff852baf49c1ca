/* Which thread runs which task of a region. */
#include "threads/shares.h"

#include "threads/interrupts.h"

static size_t share_size(const gr_region *now, int share)
{
    return now->each + (share < now->more);
}

static size_t share_start(const gr_region *now, int share)
{
    return now->each * (size_t)share + (size_t)(share < now->more ? share : now->more);
}

/* Returns how many tasks of a share have not been begun. */
static size_t left_in(gr_share *shares, const gr_region *now, int share)
{
    uint64_t begun = atomic_load_explicit(&shares[share].begun, memory_order_relaxed);
    size_t size = share_size(now, share);
    if (gr_number_in(begun) != now->number)
        return size;
    return gr_count_in(begun) < size ? size - gr_count_in(begun) : 0;
}

static void drop_tasks(gr_share *shares, const gr_region *now)
{
    for (int i = 0; i < now->shares; i++)
        atomic_store_explicit(&shares[i].begun, gr_numbered(now->number, share_size(now, i)),
                              memory_order_relaxed);
}

/* Begins the next task of a share. Returns how many of its tasks had been begun before. Relaxed
 * memory order hands out each task once; the pool's gate orders accesses to the region's data. */
static size_t begin_next(atomic_uint_least64_t *begun, uint32_t number)
{
    uint64_t before = atomic_load_explicit(begun, memory_order_relaxed);
    while (gr_number_in(before) != number)
        if (atomic_compare_exchange_weak_explicit(begun, &before, gr_numbered(number, 1),
                                                  memory_order_relaxed, memory_order_relaxed))
            return 0;
    return gr_count_in(atomic_fetch_add_explicit(begun, 1, memory_order_relaxed));
}

/* Runs tasks of a share, but leaves the last `spare` tasks to its owner. If no task of the share
 * has been begun, its owner is not at work, and the first task is run in any case. */
static void draw_from(gr_share *shares, const gr_region *now, int share, size_t spare)
{
    size_t left, size = share_size(now, share);
    while ((left = left_in(shares, now, share)) > spare || (left && left == size)) {
        size_t next = begin_next(&shares[share].begun, now->number);
        if (next >= size)
            return;
        if (gr_ask_for_interrupts())
            drop_tasks(shares, now);
        else
            now->run(share_start(now, share) + next, now->context);
    }
}

static void help_others(gr_share *shares, const gr_region *now, int number, size_t spare)
{
    for (int i = number + 1; i < number + now->shares; i++)
        draw_from(shares, now, i < now->shares ? i : i - now->shares, spare);
}

void gr_draw_tasks(const gr_region *region, gr_share *shares, int number)
{
    draw_from(shares, region, number, 0);
    help_others(shares, region, number, 1);
    help_others(shares, region, number, 0);
}
