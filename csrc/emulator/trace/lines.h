/* Maps code addresses in kernels to source lines, using the line table of the kernel's library. */
#pragma once

#include "shared/c_linkage.h"

GR_C_BEGIN

/* Finds the source line of the call that returns to `place`. `*file` is the compiler's path without
 * a leading "./"; it is never freed, and a file always has the same pointer. Returns false if the
 * library has no such line. Thread-safe. The first call reads the table, which takes some
 * milliseconds. */
#ifdef GR_EMULATOR_TRACED
bool gr_line_of(const void *place, const char **file, int *line);
#else /* no table */
static inline bool gr_line_of(const void *, const char **, int *)
{
    return false;
}
#endif

GR_C_END
