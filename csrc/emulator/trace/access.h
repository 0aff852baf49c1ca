/* What a lane does at a place of the kernel's code. */
#ifndef GPUREDUCE_EMULATOR_ACCESS_H
#define GPUREDUCE_EMULATOR_ACCESS_H

namespace gr
{

enum Access { READ, WRITE, ATOMIC };

} // namespace gr

#endif
