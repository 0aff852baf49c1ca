/* The kinds of memory access. */
#ifndef GPUREDUCE_EMULATOR_ACCESS_H
#define GPUREDUCE_EMULATOR_ACCESS_H

namespace gr
{

enum Access { READ, WRITE, ATOMIC };

} // namespace gr

#endif
