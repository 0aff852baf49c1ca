/* Fibers: stacks, and the switch from one to another. */
#ifndef GPUREDUCE_EMULATOR_FIBER_H
#define GPUREDUCE_EMULATOR_FIBER_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define GR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GR_ASAN 1
#endif
#endif

#ifdef GR_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" {

/* Saves the running fiber in *save and goes on with the one saved as `to`; or, if it is not
 * `begun`, with gr_fiber_main on the empty stack that ends at `to`. One function for both, so that
 * every suspended fiber waits at one and the same return address, which the processor then
 * predicts. */
void gr_fiber_switch(void **save, void *to, bool begun);
/* Goes on with the fiber saved as `to`; the running one is never resumed. */
[[noreturn]] void gr_fiber_leave(void *to);

/* Defined by the scheduler. */
[[noreturn]] void gr_fiber_main(void);
}

namespace gr
{

/* One mapping holds all stacks of an OS thread; pages come as they are touched. */
struct Stacks {
    char *arena;
    size_t bytes;
    unsigned count;
    unsigned *free_list; /* a stack of stacks: the last one given back is warmest */
    unsigned free_count;
    unsigned guarded; /* stacks 0..guarded-1 have their canary */
};

/* A frame of the emulated kernel is small; a sanitizer's is not. */
#ifdef GR_ASAN
constexpr size_t stack_bytes = 256 << 10;
#else
constexpr size_t stack_bytes = 64 << 10;
#endif
/* From one stack to the next. Were it a power of two, the tops of all stacks would fall on the same
 * few sets of the caches; an odd number of lines over, they go through all sets. */
constexpr size_t stack_stride = stack_bytes + 4096 + 5 * 64;
/* The lowest word of a stack is a canary. It borders on the next lower stack's top, which is in
 * use, so that looking after it touches no further page. */
constexpr uint64_t canary = 0x67707265647563e5;

bool stacks_reserve(Stacks *stacks, unsigned count); /* false: no memory */
void stacks_release(Stacks *stacks);
/* Takes all stacks back whose fibers will not be resumed. */
void stacks_abandon(Stacks *stacks);

inline char *stack_low(const Stacks *stacks, unsigned stack)
{
    return stacks->arena + stack_stride * stack;
}
inline void *stack_top(const Stacks *stacks, unsigned stack)
{
    return stack_low(stacks, stack) + stack_stride;
}
inline bool stack_intact(const Stacks *stacks, unsigned stack)
{
    return *reinterpret_cast<const uint64_t *>(stack_low(stacks, stack)) == canary;
}
inline unsigned stack_take(Stacks *stacks)
{
    unsigned stack = stacks->free_list[--stacks->free_count];
    if (stack >= stacks->guarded) { /* stacks are first taken in order: this one is the next */
        *reinterpret_cast<uint64_t *>(stack_low(stacks, stack)) = canary;
        stacks->guarded = stack + 1;
    }
    return stack;
}
inline void stack_give(Stacks *stacks, unsigned stack)
{
    stacks->free_list[stacks->free_count++] = stack;
}

/* AddressSanitizer wants to know when the stack changes: announce_switch before (the place to keep
 * its own record of the stack that is left; none for a fiber that ends), announce_arrival after, or
 * announce_start at the beginning of a fiber, which takes down the bounds of the first stack. */
struct StackBounds {
    const void *low;
    size_t size;
};
#ifdef GR_ASAN
inline void announce_switch(void **record, const void *low, size_t size)
{
    __sanitizer_start_switch_fiber(record, low, size);
}
inline void announce_arrival(void *record)
{
    __sanitizer_finish_switch_fiber(record, nullptr, nullptr);
}
inline void announce_start(StackBounds *first)
{
    StackBounds left;
    __sanitizer_finish_switch_fiber(nullptr, &left.low, &left.size);
    if (!first->low) /* the first fiber of all is started from the OS thread's own stack */
        *first = left;
}
#else
inline void announce_switch(void **, const void *, size_t) {}
inline void announce_arrival(void *) {}
inline void announce_start(StackBounds *) {}
#endif

} // namespace gr

#endif
