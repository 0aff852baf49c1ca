/* Functions that only the emulator has: lane schedules, memory limits and fault reports. C and
 * C++. */
#ifndef GPUREDUCE_EMULATOR_H
#define GPUREDUCE_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which the lanes (CUDA threads) of a block, and the blocks of a grid, run. A correct
 * kernel returns the same sum under all four schedules; an incorrect one usually fails under at
 * least one.
 *
 * FORWARD   lanes and blocks 0, 1, 2, ...; a lane runs until it has to wait
 * REVERSE   like FORWARD, from the last to the first
 * RANDOM    every switch draws the next lane at random, and blocks are permuted. The draws depend
 *           only on the seed and the block. The traced build also switches at about every 16th
 *           memory access
 * LOCKSTEP  traced build: the lanes of a warp switch at every memory access, as warps did before
 *           Volta. Plain build: like FORWARD
 */
typedef enum {
    GR_SCHEDULE_FORWARD,
    GR_SCHEDULE_REVERSE,
    GR_SCHEDULE_RANDOM,
    GR_SCHEDULE_LOCKSTEP
} gr_schedule;

/* Sets the schedule of the calling host thread's later launches. */
void gr_emulator_schedule(gr_schedule schedule, uint64_t seed);

/* Limits the emulated device's memory for the whole process. `token` identifies the limit; 0 bytes
 * removes it. The limit set last applies. Without any limit, the device has half of the host's
 * memory. Returns 0 if out of memory. */
int gr_emulator_memory_limit(uint64_t token, size_t bytes);

/* Whether this process can read the byte at an address. */
int gr_emulator_can_read(uintptr_t address);

/* Bytes now held by cudaMalloc and cudaHostAlloc. */
size_t gr_emulator_live_bytes(void);

/* Returns why the calling host thread's last launch failed with cudaErrorLaunchFailure: a text that
 * names lines of the kernel. Returns NULL if it did not. Valid until this thread launches again. */
const char *gr_emulator_fault(void);

/* To be called around a signal handler that may launch kernels on this thread. put_aside() saves
 * the thread's emulator state, including a running team; take_up() restores it. */
void *gr_emulator_put_aside(void);
void gr_emulator_take_up(void *aside);

/* Returns 1 in the traced build, which observes the kernels' memory accesses. */
int gr_emulator_traced(void);

#ifdef __cplusplus
}
#endif

#endif
