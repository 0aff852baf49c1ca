/* Lists of outliers: the numbers that cells of pairs or levels do not take. */
#include "segments/segment_job.h"

#include <stdlib.h>
#include <string.h>

bool gr_note_outlier(const gr_host_segments *job, gr_outliers *outliers, gr_outlier outlier)
{
    if (outliers->count == job->most_outliers)
        return false;
    if (outliers->count == outliers->room) {
        size_t room = outliers->room ? 2 * outliers->room : 64;
        gr_outlier *list = realloc(outliers->list, room * sizeof *list);
        if (!list)
            return false;
        outliers->list = list;
        outliers->room = room;
    }
    outliers->list[outliers->count++] = outlier;
    return true;
}

static int compare_cells(const void *a, const void *b)
{
    size_t one = ((const gr_outlier *)a)->cell, other = ((const gr_outlier *)b)->cell;
    return (one > other) - (one < other);
}

void gr_join_outliers(gr_host_segments *job)
{
    gr_outliers *all = job->outliers;
    size_t count = 0;
    for (int i = 0; i < job->copies; i++)
        count += job->outliers[i].count;
    if (count == 0)
        return;
    gr_outlier *list = realloc(all->list, count * sizeof *list);
    if (!list) {
        job->failed = true;
        return;
    }
    all->list = list;
    all->room = count;
    for (int i = 1; i < job->copies; i++) {
        const gr_outliers *more = &job->outliers[i];
        if (more->count > 0)
            memcpy(list + all->count, more->list, more->count * sizeof *list);
        all->count += more->count;
    }
    qsort(list, count, sizeof *list, compare_cells);
}

size_t gr_first_outlier(const gr_outliers *outliers, size_t cell)
{
    size_t low = 0, high = outliers->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (outliers->list[middle].cell < cell)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
