/* Allocation of the fibers' stacks. */
#include <stdlib.h>
#include <sys/mman.h>

#include "emulator/scheduler/fiber.h"
#ifdef GR_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace gr
{

static void refill(Stacks *stacks)
{
    for (unsigned i = 0; i < stacks->count; ++i)
        stacks->free_list[i] = stacks->count - 1 - i;
    stacks->free_count = stacks->count;
}

bool stacks_reserve(Stacks *stacks, unsigned count)
{
    if (count <= stacks->count)
        return true;
    stacks_release(stacks);
    size_t bytes = stack_stride * count;
    void *arena = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED)
        return false;
    /* A huge page would commit the unused parts of some thirty stacks. */
    madvise(arena, bytes, MADV_NOHUGEPAGE);
    stacks->free_list = static_cast<unsigned *>(malloc(count * sizeof(unsigned)));
    if (!stacks->free_list) {
        munmap(arena, bytes);
        return false;
    }
    stacks->arena = static_cast<char *>(arena);
    stacks->bytes = bytes;
    stacks->count = count;
    stacks->guarded = 0;
    refill(stacks);
    return true;
}

void stacks_release(Stacks *stacks)
{
    if (stacks->arena)
        munmap(stacks->arena, stacks->bytes);
    free(stacks->free_list);
    *stacks = Stacks();
}

void stacks_abandon(Stacks *stacks)
{
#ifdef GR_ASAN
    /* Frames that never returned have left their red zones poisoned. */
    __asan_unpoison_memory_region(stacks->arena, stacks->bytes);
#endif
    stacks->guarded = 0; /* an overflow may have overwritten canaries: write them anew */
    refill(stacks);
}

} // namespace gr
