/* Launches the lesson kernels that add by key: kernels/keys. */
#ifndef GPUREDUCE_ENGINE_KEYS_H
#define GPUREDUCE_ENGINE_KEYS_H

#include "engine/groups.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The request names one of these kernels. Its values, ids and sums are contiguous, the ids are
 * uint32, below `segments`, and sorted if the kernel needs that: the caller has checked them. */
gr_status gr_launch_keys(const gr_groups_request *request, gr_groups_outcome *outcome,
                         gr_error *error);

#ifdef __cplusplus
}
#endif
#endif
