/* From an address in a kernel's code to its line in the source, by the line table that the compiler
 * left in this very library. */
#ifndef GPUREDUCE_EMULATOR_LINES_H
#define GPUREDUCE_EMULATOR_LINES_H

#ifdef __cplusplus
extern "C" {
#endif

/* The line of the call that returns to `place`. Where that call came to stand in the kernel by
 * inlining a function of the runtime's own headers (a folder called include), it is the line that
 * called the function. `*file` is as the compiler saw it, without a leading "./"; it lives for
 * ever, and the same file is always the same pointer. False: the library holds no such line. Any
 * thread may call it. The first call reads the table, some milliseconds. */
bool gr_line_of(const void *place, const char **file, int *line);

#ifdef __cplusplus
}
#endif

#endif
