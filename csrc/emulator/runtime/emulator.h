/* What only the emulator has: how lanes are scheduled, how much memory there is, and what a kernel
 * did wrong. C and C++. */
#ifndef GPUREDUCE_EMULATOR_H
#define GPUREDUCE_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* In which order the lanes (CUDA threads) of a block, and the blocks of a grid, take their turns. A
 * right kernel gives its sum under all four; a wrong one is usually wrong under some.
 *
 * FORWARD   lanes and blocks 0, 1, 2, ...; a lane runs until it has to wait
 * REVERSE   the same from the last to the first
 * RANDOM    the next lane is drawn anew at every switch, blocks are permuted; the draw depends on
 *           the seed and the block alone. The traced build also switches at about every sixteenth
 *           access to memory
 * LOCKSTEP  traced build: the lanes of a warp take turns at every access to memory, as warps did
 *           before Volta. In the plain build the same as FORWARD
 */
typedef enum {
    GR_SCHEDULE_FORWARD,
    GR_SCHEDULE_REVERSE,
    GR_SCHEDULE_RANDOM,
    GR_SCHEDULE_LOCKSTEP
} gr_schedule;

/* For the launches of the calling host thread, from now on. */
void gr_emulator_schedule(gr_schedule schedule, uint64_t seed);

/* Limits the emulated device's memory, for the whole process, until the same token has 0 bytes. The
 * latest limit holds; without one, half of the host's memory is there. 0: no memory for that. */
int gr_emulator_memory_limit(uint64_t token, size_t bytes);

/* Whether this process can read the byte at an address. */
int gr_emulator_can_read(uintptr_t address);

/* Bytes now held by cudaMalloc, cudaMallocHost and cudaHostAlloc. */
size_t gr_emulator_live_bytes(void);

/* Why the calling host thread's last launch failed with cudaErrorLaunchFailure: a text naming the
 * kernel's lines. NULL if it did not. Valid until this thread launches again. */
const char *gr_emulator_fault(void);

/* Around a signal handler on this thread, which may launch kernels of its own: puts the thread's
 * state aside, a running team's too, and takes it up again. */
void *gr_emulator_put_aside(void);
void gr_emulator_take_up(void *aside);

/* 1 in the traced build: the kernels' accesses to memory are seen. */
int gr_emulator_traced(void);

#ifdef __cplusplus
}
#endif

#endif
