/* Counters of the traced build: a kernel's memory accesses, as the warp instructions that hardware
 * would issue for them, and its barriers, shuffles, atomics and fences.
 *
 * Lanes run one after another, so warp instructions are reconstructed from single accesses.
 * Accesses by lanes of one warp form one warp instruction if they come from the same place in the
 * code and each is its lane's n-th access from there since the warp's last barrier. */
#pragma once

#include "engine/pass.h"
#include "shared/c_linkage.h"

#include <stddef.h>
#include <stdint.h>

GR_C_BEGIN

/* The counters, in output order. Instructions are warp instructions; one counts if at least one
 * lane is active. */
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

/* A source line. */
typedef struct {
    const char *file; /* NULL if the compiler left no line table */
    int line;
    gr_counters counters;
    /* The line's shared memory access with the most wavefronts */
    unsigned wavefronts, ideal;
    uint32_t mask; /* active lanes; 0: there was no such access */
    uint32_t size;
    uint32_t offset[32]; /* by lane: offset into shared memory, in bytes */
    int stores;
} gr_counted_line;

/* The work of a block's warps between one barrier and the next. `barrier` is the number of earlier
 * block, cluster and grid barriers. `sync` is the number of whole-warp collectives, including
 * shuffles, since the last of these barriers. A barrier is counted in the step that it ends, a
 * shuffle in the step that it begins. */
typedef struct {
    unsigned barrier, sync;
    gr_counters counters;
    const uint32_t *lanes; /* active ones, by warp of the first block that ran */
    size_t warps;
} gr_counted_step;

/* The atomics that go to one kind of memory. In a warp instruction, lanes with one address take
 * turns, so it takes as many turns as there are lanes with its most frequent address. */
typedef struct {
    uint64_t atomics, addresses, turns;
    uint64_t most; /* to one address; of shared memory, in one block */
} gr_contention;

/* A sample of equivalent teams: blocks, clusters or the whole grid, depending on the launch. */
typedef struct {
    uint64_t first, count; /* the teams to run: fewer if a launch has fewer */
    uint64_t weight;       /* number of teams that each of them represents */
    unsigned ticket;       /* number of blocks that have arrived before the sample */
} gr_sample;

typedef struct gr_recorder gr_recorder;

/* What was recorded: weighted totals, with lines and steps sorted. */
typedef struct {
    const gr_counted_line *lines;
    const gr_counted_step *steps;
    const gr_counters *samples; /* of each, the sum over its teams that ran, unweighted */
    size_t line_count, step_count, sample_count;
    /* The atomics of all launches by address, for samples that are all blocks. An address in shared
     * memory counts once per block. */
    gr_contention global, shared;
    uint64_t blocks;        /* that ran */
    uint64_t most_requests; /* of any warp: its global loads and atomics, in warp instructions */
} gr_recording;

/* Limit on a recorder's memory. A recorder keeps warp instructions until the next barrier. */
#define GR_RECORDER_MOST_BYTES ((size_t)2 << 30)
/* Memory for one warp instruction. */
#define GR_RECORDER_INSTRUCTION_BYTES 264

/* `keeps_steps`: for a replay, in the order of threads that the caller has chosen; see steps.h.
 * Returns NULL if out of memory. */
gr_recorder *gr_recorder_new(const gr_sample *samples, size_t count, const gr_arrivals *arrivals,
                             int keeps_steps);
void gr_recorder_free(gr_recorder *recorder);

/* Starts to count the calling thread's launches. Of each launch only these samples run, on this
 * thread alone, with lanes and blocks in forward order. NULL stops counting. */
void gr_record(gr_recorder *recorder);

/* Computes the results, which stay until the recorder is freed. Returns false if recording ran out
 * of memory. */
int gr_recorded(gr_recorder *recorder, gr_recording *results);

/* Returns the number of shared memory wavefronts of one warp instruction. *ideal is the number
 * without bank conflicts. Offsets are in bytes; sizes are 1, 2, 4, 8 and 16. */
unsigned gr_shared_wavefronts(const uint32_t offset[32], uint32_t mask, unsigned size, int store,
                              unsigned *ideal);

GR_C_END
