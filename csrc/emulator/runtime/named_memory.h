/* The memory of a launch by its names in the kernel: what parameters point to, and the variables in
 * shared memory. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name; /* NULL: dynamic shared memory, whose name the kernel sets later */
    uint32_t launch;
    int is_shared, is_open; /* is_open: its size is not known */
    uint64_t first, bytes;  /* address, or distance from the start of a block's shared memory */
    uint64_t allocation;    /* its address; of shared memory 0 */
    uint32_t element;       /* bytes of an element; 0: not known */
} gr_memory;

#ifdef __cplusplus

#include <vector>

#include "emulator/scheduler/scheduler.h"

namespace gr
{

/* The memory of the launch of that number. */
std::vector<gr_memory> named_memory(const Launch *launch, const Shape &shape, uint32_t number);

/* An address as `first` above, and the block whose shared memory it is. */
struct MemoryPlace {
    bool is_shared;
    uint64_t at;
    unsigned owner;
};
MemoryPlace memory_place(const Worker *w, uintptr_t address);

/* Finds a launch's memory for a place: in shared memory the nearest variable, in global memory the
 * last one that begins before the place. NULL: all are far away. */
gr_memory *find_memory(std::vector<gr_memory> &list, uint32_t launch, const MemoryPlace &place);

} // namespace gr

#endif
