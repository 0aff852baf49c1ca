/* The steps of a replay: each warp instruction on memory, each collective and barrier, with what
 * every lane reads and writes. */
#pragma once

#include "emulator/runtime/named_memory.h"
#include "emulator/trace/counters.h"
#include "shared/c_linkage.h"

GR_C_BEGIN

/* The most steps that are kept. A launch that makes more fails. */
#define GR_MOST_STEPS ((size_t)1 << 14)

/* A lane's part in a step. */
typedef struct {
    uint64_t address;
    int64_t offset;    /* from the array's first byte */
    uint64_t value[2]; /* loaded, stored, or in memory before the atomic; operand of a collective,
                        * and the lane that a shuffle reads; a copy's source: offset and array */
    uint64_t result;   /* in memory after the atomic; the lane's result of a collective */
    uint32_t array, owner; /* owner: the block whose shared memory it is */
} gr_step_lane;

typedef struct {
    uint32_t launch, block, warp;      /* block of the grid, warp of the block */
    uint32_t kind, mask, bytes;        /* bytes of a lane's access */
    uint32_t place;                    /* its number in the recorder */
    uint32_t counts[GR_COUNTER_COUNT]; /* added to the counters by this step */
    int line;
    const char *name, *file; /* of the operation in CUDA, or of its kind; NULL: not known */
    gr_step_lane lane[32];
} gr_step;

/* What a recorder has kept. */
typedef struct {
    const gr_step *steps;
    const gr_memory *arrays;       /* of all launches */
    const uint32_t (*launches)[2]; /* for each launch: blocks, threads of a block */
    size_t step_count, array_count, launch_count;
} gr_kept_steps;

gr_kept_steps gr_recorded_replay(gr_recorder *recorder);

GR_C_END
