/* The shared memory of a team's blocks. A block's part has its __shared__ variables, if it runs a
 * user's kernel, and then its dynamic shared memory. There is a gap on both sides of each. */
#pragma once

#include "emulator/scheduler/scheduler.h"

namespace gr
{

/* Bytes from the start of a block's part to its dynamic shared memory, and to the next part. */
size_t shared_front(const Shape &shape);
size_t shared_stride(const Shape &shape);

/* Allocates the memory for w->shape. Returns false if there is none. */
bool make_shared(Worker *w);
void free_shared(Worker *w);
/* Fills a block's variables with 0xff, a NaN in every float format. */
void poison_shared(const Worker *w, const Block *block);
/* Fails the launch if a gap was written. */
void check_gaps(Worker *w);

/* An address in the team's shared memory, as an element of the nearest variable. */
struct SharedPlace {
    const char *name;
    long index;
    size_t count, element; /* elements of the variable, and the bytes of one */
    unsigned block;        /* its number in the team */
    bool inside;           /* the variable has all bytes of the access */
};
SharedPlace shared_place(const Worker *w, uintptr_t address, size_t size);

/* A fault: the running lane's access lies beside all variables. */
void beside_shared(Worker *w, uintptr_t address, size_t size, const char *verb, const void *place);

/* A fault, unless all bytes of the running lane's access belong to one variable. */
inline void check_shared(Worker *w, uintptr_t address, size_t size, const char *verb,
                         const void *place)
{
    uintptr_t in_block = address - (uintptr_t)w->block->shared;
    if (in_block >= w->shape.shared || w->shape.shared - in_block < size)
        beside_shared(w, address, size, verb, place);
}

inline bool in_shared(const Worker *w, uintptr_t address)
{
    return address - (uintptr_t)w->shared < w->shared_bytes;
}

} // namespace gr
