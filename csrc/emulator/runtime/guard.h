/* Device memory between pages without access, and the report of accesses there. */
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gr
{

/* The bytes without access before and after an allocation. */
constexpr size_t guard_bytes = size_t(1) << 20;
/* The alignment of allocations on a card. Guarded ones have less, but the counters assume it. */
constexpr size_t device_alignment = 256;

/* Memory that ends where the bytes without access begin, up to its alignment of 16 bytes. Returns
 * null if there is no memory. */
void *take_guarded(size_t bytes);
void give_guarded(void *address, size_t bytes);

/* Whether memory for kernels is guarded: in a process for users' kernels. */
bool guards_memory();
/* From now on, allocates device memory by take_guarded(). */
void guard_new_memory();
/* Finds the guarded allocation next to an address outside of it. Takes no lock: for a signal
 * handler. Returns its size, or 0 if there is none. */
size_t device_range_near(uintptr_t address, uintptr_t *first);

/* Finds bytes beside a guarded allocation, on its own pages, that a kernel has written. Repairs
 * them, and returns the address of the first one, or 0 if there is none. */
uintptr_t damaged_byte();
uintptr_t repair_guarded(uintptr_t address, size_t bytes);

struct Launch;
struct Worker;
/* A fault if an address is beside an allocation, up to the bytes without access and in them. */
void check_beside(Worker *w, uintptr_t address, const char *verb, const void *place);
/* Fails the launch if it has written beside an allocation. */
void check_guarded(Launch *launch);

} // namespace gr
