/* The launches of sums of int32 matrices along an axis, on a device with so many multiprocessors:
 * tests/hardware/test_matrices.py builds and runs this. Arguments: strategy, rows, columns, axis,
 * block, multiprocessors. Prints grid, block, shares, teams and fold. */
#include "engine/axis_plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gr_facts facts = {.capability = 90, .shared_bytes = 200 * 1024};

const gr_facts *gr_facts_of(int device)
{
    (void)device;
    return &facts;
}

size_t gr_backend_elements_at_once(void)
{
    return SIZE_MAX;
}

gr_kernel *gr_find_kernel(int strategy, gr_load load, gr_acc acc, unsigned block)
{
    static gr_kernel found;
    (void)strategy;
    found = (gr_kernel){.load = load, .acc = acc, .block = block};
    return &found;
}

gr_status gr_fail(gr_error *error, gr_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    return error->status = status;
}

int main(int count, char **argument)
{
    if (count != 7)
        return 2;
    size_t rows = strtoull(argument[2], NULL, 10), columns = strtoull(argument[3], NULL, 10);
    bool along_rows = atoi(argument[4]) == 1;
    gr_groups_request request = {.load = GR_LOAD_i32, .acc = GR_ACC_u32};
    gr_axes *axes = &request.axes;
    gr_axis_plan plan;
    gr_error error;

    while (strcmp(gr_strategy_at(request.strategy)->name, argument[1]) != 0)
        request.strategy++;
    request.block = (unsigned)atoi(argument[5]);
    request.sums.type = GR_LOAD_i32;
    request.sums.bytes = 4;
    request.sums.parts = 1;
    facts.sms = (unsigned)atoi(argument[6]);
    axes->in = (const unsigned char *)4096; /* as aligned as memory of the device is */
    axes->out = (unsigned char *)4096;
    gr_axes_push(along_rows ? &axes->kept : &axes->reduced,
                 (gr_axis){rows, 4 * (ptrdiff_t)columns, 0, along_rows ? 4 : 0});
    gr_axes_push(along_rows ? &axes->reduced : &axes->kept,
                 (gr_axis){columns, 4, 0, along_rows ? 0 : 4});
    if (gr_plan_axis(&request, &plan, &error) != GR_OK)
        return 1;
    printf("%zu %u %u %u %u\n", plan.grid, plan.block, plan.shares, plan.teams, plan.fold);
    return 0;
}
