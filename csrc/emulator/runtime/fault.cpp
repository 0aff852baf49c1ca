/* Fault reports. */
#include "emulator/runtime/fault.h"
#include "emulator/trace/lines.h"

#include <map>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <tuple>
#include <vector>

namespace gr
{

static std::string print(const char *format, ...) __attribute__((format(printf, 1, 2)));
static std::string print(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text;
}

Name name_lane(const Lane *lane)
{
    Name name;
    uint3 thread = lane->thread, block = lane->warp->block->index;
    snprintf(name.text, sizeof name.text, "thread (%u,%u,%u) of block (%u,%u,%u)", thread.x,
             thread.y, thread.z, block.x, block.y, block.z);
    return name;
}

Name name_line(const void *place)
{
    Name name = {};
    const char *file = nullptr;
    int line = 0;
    if (place && gr_line_of(place, &file, &line) && file)
        snprintf(name.text, sizeof name.text, "%s:%d: ", file, line);
    return name;
}

Name name_index(const char *array, long index, size_t count)
{
    Name name;
    if (count == 1 && index == 0)
        snprintf(name.text, sizeof name.text, "%s", array);
    else
        snprintf(name.text, sizeof name.text, "%s[%ld]; %s has %zu element%s", array, index, array,
                 count, count == 1 ? "" : "s");
    return name;
}

const char *name_wait(unsigned waits)
{
    static const char *const names[] = {
        "__syncwarp",        "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync",
        "__shfl_xor_sync",   "__ballot_sync",     "__any_sync",        "__all_sync",
        "__match_any_sync",  "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
        "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",
        "__reduce_xor_sync", "__activemask",      "__syncthreads",     "cluster.sync",
        "grid.sync",         "copy_wait"};
    return waits < sizeof names / sizeof *names ? names[waits] : "nothing";
}

/* Formats numbers as ranges: "0-15, 32, 40-47". */
static std::string name_ranges(const std::vector<unsigned> &numbers)
{
    std::string text;
    for (size_t i = 0, end; i < numbers.size(); i = end) {
        for (end = i + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1; ++end) {
        }
        if (text.size() > 60)
            return text + ", ...";
        text += print(i ? ", %u" : "%u", numbers[i]);
        if (end - i > 1)
            text += print("-%u", numbers[end - 1]);
    }
    return text;
}

/* One line of text per place where lanes of the block wait. */
static std::string describe_block(const Worker *w, const Block *block)
{
    typedef std::tuple<std::string, int, unsigned, unsigned> Place; /* file, line, wait, mask */
    std::map<Place, std::vector<unsigned>> places;
    const Barrier *own = &block->own;
    unsigned ended = 0;
    for (unsigned i = 0; i < own->warp_count; ++i) {
        const Warp *warp = &own->warps[i];
        for (unsigned lane = 0; lane < 32; ++lane) {
            const Lane *at = &w->lanes[warp->index * 32 + lane];
            unsigned rank = i * 32 + lane;
            if (warp->live >> lane & 1)
                places[{at->file, at->line, at->waits, at->waits < WAIT_BARRIER ? at->mask : 0}]
                    .push_back(rank);
            else if (rank < w->shape.block.x * w->shape.block.y * w->shape.block.z)
                ++ended;
        }
    }
    if (places.empty())
        return "";
    uint3 index = block->index;
    std::string text = print("\n  block (%u,%u,%u):", index.x, index.y, index.z);
    for (const auto &place : places) {
        unsigned waits = std::get<2>(place.first);
        text += print("\n    %s:%d: %zu wait in %s", std::get<0>(place.first).c_str(),
                      std::get<1>(place.first), place.second.size(), name_wait(waits));
        if (waits < WAIT_BARRIER)
            text += print("(0x%08x)", std::get<3>(place.first));
        text += ": threads " + name_ranges(place.second);
    }
    return text + print("\n    %u have ended", ended);
}

static void report_deadlock(const Worker *w)
{
    std::string text = "deadlock: every thread waits for a thread that never arrives";
    unsigned described = 0, left = 0;
    for (unsigned i = 0; i < w->block_count; ++i) {
        std::string block = describe_block(w, &w->blocks[i]);
        if (block.empty())
            continue;
        if (++described <= 4)
            text += block;
        else
            ++left;
    }
    if (left)
        text += print("\n  and %u more blocks", left);
    launch_failed(w->launch, cudaErrorLaunchFailure, text.c_str());
}

void fault(Worker *w, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    w->faulted = true;
    launch_failed(w->launch, cudaErrorLaunchFailure, text);
    leave_team(w);
}

void stack_overflow(Worker *w)
{
    fault(w, "stack overflow: %s used more than %zu KiB", name_lane(w->lane).text,
          stack_bytes >> 10);
}

void deadlock(Worker *w)
{
    w->faulted = true;
    try {
        report_deadlock(w);
    } catch (const std::bad_alloc &) {
        launch_failed(w->launch, cudaErrorLaunchFailure, "deadlock");
    }
    leave_team(w);
}

} // namespace gr

/* The column tells gpureduce/kernels/faults.py the array's name. */
void gr_bad_index(const char *file, unsigned line, unsigned column, const char *type, long index)
{
    gr::Worker *w = gr::worker;
    if (w && w->lane)
        gr::fault(w, "%s:%u:%u: %s uses index %ld of an array of type %s", file, line, column,
                  gr::name_lane(w->lane).text, index, type);
}

void gr_bad_local(const void *place)
{
    gr::Worker *w = gr::worker;
    if (w && w->lane)
        gr::fault(w, "%s%s has written beyond a local array of the function that ends here",
                  gr::name_line(place).text, gr::name_lane(w->lane).text);
    abort();
}

void gr_bad_assertion(const char *file, unsigned line, const char *text)
{
    gr::Worker *w = gr::worker;
    if (w && w->lane)
        gr::fault(w, "%s:%u: %s fails the assertion %s", file, line, gr::name_lane(w->lane).text,
                  text);
}

void gr_misaligned(const char *file, unsigned line, const char *type, unsigned bytes)
{
    gr::Worker *w = gr::worker;
    if (w && w->lane)
        gr::fault(w, "%s:%u: %s uses a %s at an address that is not a multiple of %u bytes", file,
                  line, gr::name_lane(w->lane).text, type, bytes);
}

void gr_trap(const char *file, int line)
{
    gr::fault(gr::worker, "%s:%d: %s calls __trap", file, line,
              gr::name_lane(gr::worker->lane).text);
}
