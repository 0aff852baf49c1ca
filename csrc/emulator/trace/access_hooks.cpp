/* Memory access hooks of the traced build. The kernels are compiled with -O0 -fsanitize=thread,
 * which inserts a call before each memory access. They are linked against these functions instead
 * of ThreadSanitizer's. */
#ifdef GR_EMULATOR_TRACED

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "emulator/runtime/guard.h"
#include "emulator/runtime/shared_memory.h"
#include "emulator/trace/recorder.h"
#include "emulator/races/detector.h"

using namespace gr;

/* Switches lanes before a memory access, if the schedule asks for it. In lockstep, each lane of a
 * warp comes to its k-th access and lets the others reach theirs before it makes its own. A warp
 * runs on until all its lanes wait or have ended. With a seed other than 0, the lanes take turns
 * from the last to the first, because CUDA defines no order for the branches of a warp. */
static void take_turns(Worker *w, uintptr_t address, const void *place)
{
    Lane *me = w->lane;
    if (w->schedule == GR_SCHEDULE_LOCKSTEP)
        switch_lanes(w, me, next_lane(w, me->warp, me->index));
    if (w->schedule == GR_SCHEDULE_RANDOM && watched(w))
        watch_turn(w, address, place);
    if (w->schedule == GR_SCHEDULE_RANDOM && (random_next(&w->random) >> 60) == 0)
        switch_lanes(w, me, random_lane(w));
}

/* Called before every access of a lane to shared or global memory. `place` is the return address of
 * the hook: the access's place in the kernel. The race detector uses the kind `to_others`, the
 * counters use the kind `to_memory`; the two differ only for whole loads and stores. */
static void access(Worker *w, const void *address, size_t size, Access to_others, Access to_memory,
                   const Site &site)
{
    const void *place = site.at;
    static const char *const verbs[] = {"reads", "writes", "updates"};
    take_turns(w, (uintptr_t)address, place);
    look_now_and_then(w);
    w->vain = 0;
    w->last = {(uintptr_t)address, size, place};
    if (counted(w)) /* first: the last step of a replay is the one that fails */
        count_access(w, address, size, to_memory, place);
    if (in_shared(w, (uintptr_t)address))
        check_shared(w, (uintptr_t)address, size, verbs[to_memory], place);
    else if (to_memory != READ)
        check_beside(w, (uintptr_t)address, verbs[to_memory], place);
    if (watched(w))
        watch_access(w, address, size, to_others, to_memory != WRITE, site);
}

/* Ignores host code, which has no lane. Ignores a lane's own stack variables, and threadIdx and the
 * like. */
static inline void hook(const void *address, size_t size, Access to_others, Access to_memory,
                        const Site &site)
{
    Worker *w = worker;
    if (!w || !w->lane)
        return;
    uintptr_t at = (uintptr_t)address;
    if (at - (uintptr_t)w->stacks.arena < w->stacks.bytes || at - w->builtins < w->builtins_bytes)
        return;
    access(w, address, size, to_others, to_memory, site);
}
static inline void hook(const void *address, size_t size, Access kind, const void *place)
{
    hook(address, size, kind, kind, {place, 0});
}

#define PLACE __builtin_return_address(0)

#pragma GCC visibility push(default) /* for kernels of users, which are libraries of their own */
extern "C" {

void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}

#define GR_HOOK(name, size, kind, how)                                                             \
    void name(void *address)                                                                       \
    {                                                                                              \
        hook(address, size, kind, kind, {PLACE, 0, how});                                          \
    }
#define GR_HOOKS(size)                                                                             \
    GR_HOOK(__tsan_read##size, size, READ, PLAIN)                                                  \
    GR_HOOK(__tsan_write##size, size, WRITE, PLAIN)                                                \
    GR_HOOK(__tsan_read_write##size, size, WRITE, PLAIN)                                           \
    GR_HOOK(__tsan_unaligned_read##size, size, READ, PLAIN)                                        \
    GR_HOOK(__tsan_unaligned_write##size, size, WRITE, PLAIN)                                      \
    GR_HOOK(__tsan_unaligned_read_write##size, size, WRITE, PLAIN)                                 \
    GR_HOOK(__tsan_volatile_read##size, size, READ, VOLATILE)                                      \
    GR_HOOK(__tsan_volatile_write##size, size, WRITE, VOLATILE)                                    \
    GR_HOOK(__tsan_unaligned_volatile_read##size, size, READ, VOLATILE)                            \
    GR_HOOK(__tsan_unaligned_volatile_write##size, size, WRITE, VOLATILE)
GR_HOOKS(1)
GR_HOOKS(2)
GR_HOOKS(4)
GR_HOOKS(8)
GR_HOOKS(16)

GR_HOOK(__tsan_vptr_read, sizeof(void *), READ, PLAIN)
void __tsan_vptr_update(void **address, void *)
{
    hook(address, sizeof *address, WRITE, PLACE);
}
void __tsan_read_range(void *address, size_t size)
{
    hook(address, size, READ, PLACE);
}
void __tsan_write_range(void *address, size_t size)
{
    hook(address, size, WRITE, PLACE);
}

/* Newer compilers call these to copy or fill structures. */
void *__tsan_memcpy(void *to, const void *from, size_t size)
{
    hook(from, size, READ, PLACE);
    hook(to, size, WRITE, PLACE);
    return memcpy(to, from, size);
}
void *__tsan_memmove(void *to, const void *from, size_t size)
{
    hook(from, size, READ, PLACE);
    hook(to, size, WRITE, PLACE);
    return memmove(to, from, size);
}
void *__tsan_memset(void *to, int value, size_t size)
{
    hook(to, size, WRITE, PLACE);
    return memset(to, value, size);
}

/* Called by the header functions that access memory for a kernel: see GR_TRACE_ACCESS. */
#define GR_TRACE_HOOK(name, to_others, to_memory, how)                                             \
    void name(const void *address, size_t size, const void *place)                                 \
    {                                                                                              \
        hook(address, size, to_others, to_memory, {place, 0, how});                                \
    }
GR_TRACE_HOOK(gr_trace_load, READ, READ, PLAIN)
GR_TRACE_HOOK(gr_trace_cached_load, READ, READ, CACHED)
GR_TRACE_HOOK(gr_trace_atomic, ATOMIC, ATOMIC, PLAIN)
GR_TRACE_HOOK(gr_trace_block_atomic, ATOMIC, ATOMIC, OF_BLOCK)
GR_TRACE_HOOK(gr_trace_whole_load, ATOMIC, READ, PLAIN)
GR_TRACE_HOOK(gr_trace_whole_store, ATOMIC, WRITE, PLAIN)

#pragma GCC visibility pop

static bool lane_watched(void)
{
    return worker && worker->lane && watched(worker);
}
static bool lane_counted(void)
{
    return worker && worker->lane && counted(worker);
}
void gr_trace_fence(gr_scope scope, const char *file, int line)
{
    if (lane_watched())
        watch_fence(worker, scope, file, line);
    if (lane_counted())
        count_fence(worker, file, line);
}
void gr_trace_copy_barrier(const void *barrier, const char *file, int line)
{
    if (lane_watched())
        watch_copy_barrier(worker, barrier, file, line);
}
void gr_trace_copy(const void *shared, const void *global, size_t bytes, const void *barrier,
                   const char *file, int line)
{
    if (lane_watched())
        watch_copy(worker, shared, global, bytes, barrier, file, line);
    if (lane_counted())
        count_copy(worker, shared, global, bytes, file, line);
}
void gr_trace_copied(const void *barrier, const char *file, int line)
{
    if (lane_watched())
        watch_copied(worker, barrier, file, line);
}
}

#endif
