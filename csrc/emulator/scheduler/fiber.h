/* Fibers: their stacks, and the switch from one fiber to another. */
#pragma once

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

/* Saves the running fiber in *save and resumes the fiber saved as `to`. If that fiber has not
 * `begun`, starts gr_fiber_main on the empty stack that ends at `to`. One function does both, so
 * that every suspended fiber has the same return address, which the processor then predicts. */
void gr_fiber_switch(void **save, void *to, bool begun);
/* Resumes the fiber saved as `to`; the running fiber is never resumed. */
[[noreturn]] void gr_fiber_leave(void *to);

/* Defined by the scheduler. */
[[noreturn]] void gr_fiber_main(void);
}

namespace gr
{

/* The stacks of one OS thread, in one mapping. Pages are committed on first touch. */
struct Stacks {
    char *arena;
    size_t bytes;
    unsigned count;
    unsigned *free_list; /* LIFO: the stack freed last is warmest in the cache */
    unsigned free_count;
    unsigned guarded; /* stacks 0..guarded-1 have their canary */
};

/* Frames of emulated kernels are small; sanitized frames are not. */
#ifdef GR_ASAN
constexpr size_t stack_bytes = 256 << 10;
#else
constexpr size_t stack_bytes = 64 << 10;
#endif
/* Distance from one stack to the next. With a power of two, the tops of all stacks would map to the
 * same few cache sets. The odd number of extra cache lines spreads them over all sets. */
constexpr size_t stack_stride = stack_bytes + 4096 + 5 * 64;
/* The lowest word of a stack is a canary. It is next to the top of the stack below, which is in
 * use, so checking it touches no additional page. */
constexpr uint64_t canary = 0x67707265647563e5;

bool stacks_reserve(Stacks *stacks, unsigned count); /* false: out of memory */
void stacks_release(Stacks *stacks);
/* Frees all stacks. Their fibers must never be resumed. */
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
    if (stack >= stacks->guarded) { /* first use is in order: this stack is the next one */
        *reinterpret_cast<uint64_t *>(stack_low(stacks, stack)) = canary;
        stacks->guarded = stack + 1;
    }
    return stack;
}
inline void stack_give(Stacks *stacks, unsigned stack)
{
    stacks->free_list[stacks->free_count++] = stack;
}

/* AddressSanitizer must be notified of stack switches. announce_switch goes before the switch;
 * `record` stores ASan's record of the stack being left, and is null for a fiber that ends.
 * announce_arrival goes after the switch. A new fiber calls announce_start instead, which records
 * the bounds of the OS thread's stack. */
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
    if (!first->low) /* the very first fiber is started from the OS thread's own stack */
        *first = left;
}
#else
inline void announce_switch(void **, const void *, size_t) {}
inline void announce_arrival(void *) {}
inline void announce_start(StackBounds *) {}
#endif

} // namespace gr
