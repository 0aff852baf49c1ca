/* How kernels read an array of host memory themselves, over the bus. */
#ifndef GPUREDUCE_REACH_H
#define GPUREDUCE_REACH_H

#include "engine/workspace.h"

#include <stdbool.h>

/* Of larger arrays a copy in pinned memory would be too much to keep. */
enum { GR_REACH_BYTES = 16 << 20 };

/* What is to be launched reads `array`, on the workspace's device: all of which is there if it has
 * no marks. */
typedef void gr_launcher(const gr_arriving *array, void *context);

/* Brings the array within reach, and calls `launch`, once, on this thread. If its kernel `waits`
 * for marks, that is at once if others come who see to the array's copy, else when all is there; an
 * array in pinned memory is there. The copy is until the workspace's next sum. While it is made,
 * which may mean to read a file, blocks of the kernel wait on the device. False, and nothing was
 * called, if there is no memory for it, or a copy to the device is quicker. At most GR_REACH_BYTES.
 */
bool gr_bring_within_reach(gr_workspace *workspace, const void *host, size_t bytes, bool waits,
                           gr_launcher *launch, void *context);

#endif
