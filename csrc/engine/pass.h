/* The launches that a sum is made of, one at a time and without data: for looking at what a kernel
 * does rather than at what it adds up. */
#ifndef GPUREDUCE_PASS_H
#define GPUREDUCE_PASS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    unsigned block, grid;
    unsigned team_blocks; /* that the device must run side by side */
    unsigned outs;        /* values it leaves, the next pass's elements */
} gr_pass;

/* The first launch over request->n elements, or, if `later`, one over block sums. */
gr_status gr_plan_pass(const gr_request *request, int later, gr_pass *pass, gr_error *error);

/* Where a launch counts its blocks as they come, from 0: by a ticket, or by each of some words from
 * bit `shift` on; and where they leave marked sums. NULL where it does not. */
typedef struct {
    unsigned *ticket;
    uint64_t *word;
    unsigned words, shift;
    void *marked;
    size_t marked_bytes;
} gr_roll;

/* Launches it on elements that are all zero; `prepare` is told of the roll that the launch starts
 * from. Memory is only taken as the kernel touches it. */
gr_status gr_run_pass(const gr_request *request, int later,
                      int (*prepare)(void *context, const gr_roll *roll), void *context,
                      gr_error *error);

#ifdef __cplusplus
}
#endif
#endif
