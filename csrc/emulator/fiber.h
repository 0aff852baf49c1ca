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

extern "C" {

/* Saves the running fiber in *save and goes on with the one saved as `to`. */
void gr_fiber_switch(void **save, void *to);
/* Saves the running fiber in *save and calls gr_fiber_main on the empty stack that ends at `top`.
 * A call, where others prepare a frame and return into it: the processor predicts it. */
void gr_fiber_start(void **save, void *top);
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
    unsigned used;    /* only stacks 0..used-1 were taken since the last reset */
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
/* The lowest line of a stack holds a canary. It borders on the next lower stack's top, which is in
 * use, so that looking after it touches no further page. */
constexpr size_t canary_bytes = 64;

constexpr uint64_t canary = 0x67707265647563e5;

bool stacks_reserve(Stacks *stacks, unsigned count); /* false: no memory */
void stacks_release(Stacks *stacks);
/* Whether none has overflowed since the last reset. */
bool stacks_intact(const Stacks *stacks);
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
inline unsigned stack_take(Stacks *stacks)
{
    unsigned stack = stacks->free_list[--stacks->free_count];
    if (stack >= stacks->used)
        stacks->used = stack + 1;
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

} // namespace gr

#endif
