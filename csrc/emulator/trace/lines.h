/* Maps code addresses in kernels to source lines, using the line table in this very library. */
#ifndef GPUREDUCE_EMULATOR_LINES_H
#define GPUREDUCE_EMULATOR_LINES_H

#ifdef __cplusplus
extern "C" {
#endif

/* Finds the source line of the call that returns to `place`. If the call was inlined into the
 * kernel from one of the runtime's own headers (a folder called include), finds the kernel's line
 * that called the header's function. `*file` is the compiler's path without a leading "./"; it is
 * never freed, and a file always has the same pointer. Returns false if the library has no such
 * line. Thread-safe. The first call reads the table, which takes some milliseconds. */
bool gr_line_of(const void *place, const char **file, int *line);

#ifdef __cplusplus
}
#endif

#endif
