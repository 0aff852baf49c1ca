/* Faults: what a kernel did that CUDA forbids or that can never end. */
#ifndef GPUREDUCE_EMULATOR_FAULT_H
#define GPUREDUCE_EMULATOR_FAULT_H

#include "emulator/scheduler/scheduler.h"

namespace gr
{

/* Ends the running team with this text; back to the OS thread's own stack. */
[[noreturn]] void fault(Worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* deadlock(), a report of where all lanes wait, and stack_overflow() are in scheduler.h. */
/* For a text: which thread this is, and what it waits in. No heap memory: nobody who calls fault()
 * gets to free it. */
struct Name {
    char text[96];
};
Name name_lane(const Lane *lane);
const char *name_wait(unsigned waits);

} // namespace gr

#endif
