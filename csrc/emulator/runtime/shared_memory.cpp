/* The layout of a team's shared memory, and the report of accesses beside its variables. */
#include "emulator/runtime/shared_memory.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator/runtime/fault.h"
#include "emulator/runtime/guard.h"
#include "shared_variables.h"
#ifdef GR_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace gr
{

static size_t rounded(size_t bytes)
{
    return (bytes + 1023) / 1024 * 1024;
}

size_t shared_front(const Shape &shape)
{
    return rounded((shape.variables ? shape.variables->before : 0) + GR_SHARED_GAP);
}

size_t shared_stride(const Shape &shape)
{
    return shared_front(shape) + rounded(shape.shared + GR_SHARED_GAP);
}

/* Calls visit(first, bytes) for each gap of a block's part. The list of variables begins with the
 * one of the lowest address. */
template <typename Visit> static void each_gap(const Worker *w, const Block *block, Visit visit)
{
    char *at = block->shared - shared_front(w->shape), *end = at + shared_stride(w->shape);
    for (const gr_variable *v = w->shape.variables; v; v = v->next) {
        visit(at, (size_t)(block->shared - v->before - at));
        at = block->shared - v->before + v->bytes;
    }
    visit(at, (size_t)(block->shared - at));
    at = block->shared + w->shape.shared;
    visit(at, (size_t)(end - at));
}

bool make_shared(Worker *w)
{
    size_t stride = shared_stride(w->shape), front = shared_front(w->shape);
    void *memory = nullptr;
    w->shared_bytes = stride * w->shape.team_blocks;
    w->shared_guarded = guards_memory();
    if (w->shared_guarded)
        memory = take_guarded(w->shared_bytes);
    else if (posix_memalign(&memory, 1024, w->shared_bytes) != 0)
        memory = nullptr;
    w->shared = static_cast<char *>(memory);
    if (!memory)
        return false;
    memset(memory, 0xff, w->shared_bytes);
    for (unsigned i = 0; i < w->shape.team_blocks; ++i) {
        w->blocks[i].shared = w->shared + stride * i + front;
#ifdef GR_ASAN
        each_gap(w, &w->blocks[i],
                 [](char *first, size_t bytes) { __asan_poison_memory_region(first, bytes); });
#endif
    }
    return true;
}

void free_shared(Worker *w)
{
#ifdef GR_ASAN
    if (w->shared)
        __asan_unpoison_memory_region(w->shared, w->shared_bytes);
#endif
    if (w->shared_guarded)
        give_guarded(w->shared, w->shared_bytes);
    else
        free(w->shared);
    w->shared = nullptr;
}

void poison_shared(const Worker *w, const Block *block)
{
    memset(block->shared, 0xff, w->shape.shared);
    for (const gr_variable *v = w->shape.variables; v; v = v->next)
        memset(block->shared - v->before, 0xff, v->bytes);
}

SharedPlace shared_place(const Worker *w, uintptr_t address, size_t size)
{
    size_t stride = shared_stride(w->shape), in_team = address - (uintptr_t)w->shared;
    long at = (long)(in_team % stride) - (long)shared_front(w->shape), nearest = LONG_MAX;
    SharedPlace found = {};
    auto consider = [&](const char *name, long first, long bytes, long element) {
        long in = at - first, away = in < 0 ? -in : in < bytes ? 0 : in - bytes + 1;
        if (away >= nearest)
            return;
        nearest = away;
        found.name = name;
        found.index = (in < 0 ? in - element + 1 : in) / element;
        found.count = (size_t)(bytes / element);
        found.element = (size_t)element;
        found.inside = in >= 0 && in + (long)size <= bytes;
    };
    for (const gr_variable *v = w->shape.variables; v; v = v->next)
        consider(v->name, -(long)v->before, (long)v->bytes, (long)v->element);
    if (w->shape.shared || !w->shape.variables)
        consider(gr_shared_name ? gr_shared_name : "shared", 0, (long)w->shape.shared, (long)size);
    found.block = (unsigned)(in_team / stride);
    return found;
}

/* With AddressSanitizer, which checks the gaps itself, this does nothing. */
void check_gaps(Worker *w)
{
#ifndef GR_ASAN
    for (unsigned i = 0; i < w->block_count; ++i)
        each_gap(w, &w->blocks[i], [&](char *first, size_t bytes) {
            if (*first == (char)0xff && !memcmp(first, first + 1, bytes - 1))
                return;
            size_t away = 0;
            while (first[away] == (char)0xff)
                ++away;
            SharedPlace at = shared_place(w, (uintptr_t)(first + away), 4);
            char text[260];
            snprintf(text, sizeof text, "a thread of block %u writes %s", i,
                     name_index(at.name, at.index, at.count).text);
            launch_failed(w->launch, cudaErrorLaunchFailure, text);
            memset(first, 0xff, bytes);
        });
#else
    (void)w;
#endif
}

void beside_shared(Worker *w, uintptr_t address, size_t size, const char *verb, const void *place)
{
    SharedPlace at = shared_place(w, address, size);
    if (at.inside)
        return;
    fault(w, "%s%s %s %s", name_line(place).text, name_lane(w->lane).text, verb,
          name_index(at.name, at.index, at.count).text);
}

} // namespace gr
