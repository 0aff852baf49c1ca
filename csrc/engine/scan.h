/* Launches the lesson kernels that make running sums: kernels/scan. */
#ifndef GPUREDUCE_ENGINE_SCAN_H
#define GPUREDUCE_ENGINE_SCAN_H

#include "engine/groups.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The request names one of these kernels. Its elements and entries are contiguous, and n > 0: the
 * caller has checked that. */
gr_status gr_launch_scan(const gr_groups_request *request, gr_launched *launched, gr_error *error);

#ifdef __cplusplus
}
#endif
#endif
