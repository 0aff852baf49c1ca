/* What a kernel did, counted: its accesses to memory as the warp instructions that the hardware
 * makes of them, and its barriers, shuffles, atomics and fences. The traced build's own.
 *
 * Lanes run one after another, so their accesses are put together again: those of one warp from one
 * place in the code, the first time each lane comes there since the warp's last barrier, are one
 * warp instruction; those of the second time the next. */
#ifndef GPUREDUCE_EMULATOR_COUNTERS_H
#define GPUREDUCE_EMULATOR_COUNTERS_H

#include "engine/pass.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The counters, in the order in which they are handed out. Instructions are those of warps, counted
 * if a lane is active. */
#define GR_COUNTERS(X)                                                                             \
    X(shared_load_instructions)                                                                    \
    X(shared_load_wavefronts)                                                                      \
    X(shared_load_conflicts)                                                                       \
    X(shared_load_lanes)                                                                           \
    X(shared_store_instructions)                                                                   \
    X(shared_store_wavefronts)                                                                     \
    X(shared_store_conflicts)                                                                      \
    X(shared_store_lanes)                                                                          \
    X(global_load_requests)                                                                        \
    X(global_load_sectors)                                                                         \
    X(global_load_bytes_used)                                                                      \
    X(global_load_lanes)                                                                           \
    X(global_store_requests)                                                                       \
    X(global_store_sectors)                                                                        \
    X(global_store_bytes_used)                                                                     \
    X(global_store_lanes)                                                                          \
    X(cluster_load_instructions) /* from another block's shared memory */                          \
    X(cluster_load_lanes)                                                                          \
    X(cluster_store_instructions)                                                                  \
    X(cluster_store_lanes)                                                                         \
    X(atomics) /* one per lane */                                                                  \
    X(atomic_instructions)                                                                         \
    X(block_barriers)             /* one per block */                                              \
    X(block_barrier_instructions) /* one per warp */                                               \
    X(cluster_barriers)                                                                            \
    X(grid_barriers)                                                                               \
    X(warp_barriers)                                                                               \
    X(shuffles)                                                                                    \
    X(votes)                                                                                       \
    X(warp_reductions)                                                                             \
    X(fences)                                                                                      \
    X(bulk_copies)                                                                                 \
    X(bulk_copy_bytes)

enum {
#define X(name) GR_COUNT_##name,
    GR_COUNTERS(X)
#undef X
        GR_COUNTER_COUNT
};

typedef struct {
    uint64_t count[GR_COUNTER_COUNT];
} gr_counters;

/* A line of the source. */
typedef struct {
    const char *file; /* NULL where the compiler left no line table */
    int line;
    gr_counters counters;
    /* The access to shared memory from here with the most wavefronts */
    unsigned wavefronts, ideal;
    uint32_t mask; /* no lane: there was none */
    uint32_t size;
    uint32_t offset[32]; /* of each lane's, in bytes of shared memory */
    int stores;
} gr_counted_line;

/* What the warps of a block do between one barrier and the next. `barrier` counts the barriers of
 * the block (or of more than it) before it, `sync` those of the warp, shuffles among them, since. A
 * barrier is counted in the step that it ends, a shuffle in the one that it begins. */
typedef struct {
    unsigned barrier, sync;
    gr_counters counters;
} gr_counted_step;

/* Some teams that are alike: blocks, clusters, or the whole grid, as the launch has them. */
typedef struct {
    uint64_t first, count; /* which run */
    uint64_t weight;       /* and how many each of them stands for */
    unsigned ticket;       /* how many blocks have come before */
} gr_sample;

typedef struct gr_recorder gr_recorder;

/* Memory that a recorder takes at most: it keeps warp instructions until the next barrier. */
#define GR_RECORDER_MOST_BYTES ((size_t)2 << 30)
/* Memory for one warp instruction. */
#define GR_RECORDER_INSTRUCTION_BYTES 264

/* NULL: no memory. */
gr_recorder *gr_recorder_new(const gr_sample *samples, size_t count, const gr_roll *roll);
void gr_recorder_free(gr_recorder *recorder);

/* The calling thread's launches are counted from now on, on this thread alone and for these samples
 * only, lanes and blocks forward; NULL: no longer. */
void gr_record(gr_recorder *recorder);

/* What was counted, the samples' weights worked in; lines and steps are sorted. False: no memory
 * somewhere on the way. The others follow a call of gr_recorded() that was true. */
int gr_recorded(gr_recorder *recorder);
size_t gr_recorded_lines(const gr_recorder *recorder, const gr_counted_line **lines);
size_t gr_recorded_steps(const gr_recorder *recorder, const gr_counted_step **steps);
/* Of one team of this sample. */
void gr_recorded_sample(const gr_recorder *recorder, size_t sample, gr_counters *counters);
/* Which lanes of each warp of the first block that ran were active in a step; their number. */
size_t gr_recorded_lanes(const gr_recorder *recorder, unsigned barrier, unsigned sync,
                         const uint32_t **warps);

/* The wavefronts that shared memory takes for one warp instruction; *ideal, if nothing conflicted.
 * Offsets in bytes; sizes 1, 2, 4, 8 and 16. */
unsigned gr_shared_wavefronts(const uint32_t offset[32], uint32_t mask, unsigned size, int store,
                              unsigned *ideal);

#ifdef __cplusplus
}
#endif

#endif
