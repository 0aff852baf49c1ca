/* Faults: a kernel did something that CUDA forbids, or can never end. */
#pragma once

#include "emulator/scheduler/scheduler.h"

namespace gr
{

/* Ends the running team with this text, and returns to the OS thread's own stack. */
[[noreturn]] void fault(Worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* deadlock(), which reports where all lanes wait, and stack_overflow() are declared in
 * scheduler.h. */
/* Names of a thread and of the operation that it waits for. They use no heap memory, because
 * fault() does not unwind its callers. */
struct Name {
    char text[200];
};
Name name_lane(const Lane *lane);
/* "kernel.cu:12: ", the line of the call that returns there; "" if it is not known. */
Name name_line(const void *place);
/* "cell[64]; cell has 64 elements" */
Name name_index(const char *name, long index, size_t count);
const char *name_wait(unsigned waits);

} // namespace gr
