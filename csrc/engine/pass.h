/* Single launches of a sum, on zeros in place of data. For counting a kernel's operations. */
#ifndef GPUREDUCE_PASS_H
#define GPUREDUCE_PASS_H

#include "engine/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    unsigned block, grid;
    unsigned team_blocks; /* blocks that must be resident together */
    unsigned outs;        /* values left, the elements of the next pass */
} gr_pass;

/* Plans the first launch over request->n elements, or a launch over request->n block sums if
 * `later`. */
gr_status gr_plan_pass(const gr_request *request, int later, gr_pass *pass, gr_error *error);

/* Memory in which a launch counts its blocks as they finish, starting from 0, and memory for marked
 * sums. The counter is a ticket, or the bits from `shift` on of each of `words` words. Pointers
 * that the launch does not use are NULL. */
typedef struct {
    unsigned *ticket;
    uint64_t *word;
    unsigned words, shift;
    void *marked;
    size_t marked_bytes;
} gr_roll;

/* Runs that launch on zeros. Calls `prepare` before the launch, with the launch's roll; `prepare`
 * returns 0 if there is no memory. Memory is allocated only where the kernel touches it. */
gr_status gr_run_pass(const gr_request *request, int later,
                      int (*prepare)(void *context, const gr_roll *roll), void *context,
                      gr_error *error);

#ifdef __cplusplus
}
#endif
#endif
